// The tokenizer of a bundle: text to token ids and back, equal to Hugging Face's `tokenizers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/mapped_file.h"
#include "core/status.h"

namespace pinfer {

struct TokenizerParts;

// Where libraries that a rare tokenizer needs (Oniguruma) are looked for before the system's
// places: directories, in order.
struct TokenizerOptions {
  std::vector<std::string> library_directories;
};

// A compiled tokenizer (tokenizer.bin), mapped. Immutable: all methods may be called from any
// number of threads. Owns its mapping.
class Tokenizer {
 public:
  // Errors: NOT_FOUND, DATA_LOSS for a damaged file, FAILED_PRECONDITION for one of another format
  // version or one whose splitting pattern needs a library that is not there.
  static Result<std::unique_ptr<Tokenizer>> open(const std::string& path,
                                                 const TokenizerOptions& options = {});
  static Result<std::unique_ptr<Tokenizer>> open(std::unique_ptr<MappedFile> file,
                                                 const TokenizerOptions& options = {});
  // The same from a copy of `bytes`.
  static Result<std::unique_ptr<Tokenizer>> from_memory(std::span<const std::byte> bytes,
                                                        const TokenizerOptions& options = {});
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text`. The text of special tokens in it becomes those tokens. With
  // add_special_tokens, also the ids that the tokenizer puts around a text (such as <s>).
  // INVALID_ARGUMENT with the byte offset if `text` is not valid UTF-8.
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens) const;

  // The text of `ids`; bytes that make no character become U+FFFD. INVALID_ARGUMENT naming the id
  // if one is outside [0, vocab_size()). Ids without a token add nothing.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // One more than the largest id.
  int32_t vocab_size() const;
  bool has_token(int32_t id) const;
  // Whether skip_special_tokens leaves the token out.
  bool is_special(int32_t id) const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as it stands in the vocabulary (in the tokenizer's own alphabet); empty without one.
  std::string id_to_token(int32_t id) const;
  // The bytes that the token adds to decoded text when it is not the first; may be part of a
  // character. Empty without a token.
  std::string token_bytes(int32_t id) const;

 private:
  friend class StreamingDetokenizer;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace pinfer
