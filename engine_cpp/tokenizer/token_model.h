// What turns a piece of text into token ids: one implementation per model type of tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace pinfer {

// Immutable and thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `piece`. INVALID_ARGUMENT if it holds something that the model has no token
  // for, where the reference fails, too. REQUIRES !piece.empty().
  virtual Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const = 0;
};

// What a model does with text that it has no token for.
struct UnknownToken {
  std::optional<int32_t> id;
  std::string missing;  // named in tokenizer.json, but not in the vocabulary: an error when needed

  static Result<UnknownToken> parse(const nlohmann::json& fields, const Vocabulary& vocabulary);
  // INVALID_ARGUMENT naming the text if the token is needed and missing.
  Status check(std::string_view text) const;
};

// The token of each single byte, or -1.
using ByteIds = std::array<int32_t, 256>;
// REQUIRES of the file that ids lie in [lowest, vocabulary.size()); DATA_LOSS otherwise.
Result<ByteIds> read_byte_ids(const TokenizerFile& file, const Vocabulary& vocabulary,
                              int32_t lowest);

// Makes the model that `fields` describe. `vocabulary` and `file` must outlive it. Errors name the
// field; nlohmann's exceptions may escape where one is missing.
Result<std::unique_ptr<const TokenModel>> make_token_model(const nlohmann::json& fields,
                                                           const TokenizerFile& file,
                                                           const Vocabulary& vocabulary);

// The makers of the single types.
Result<std::unique_ptr<const TokenModel>> make_bpe_model(const nlohmann::json& fields,
                                                         const TokenizerFile& file,
                                                         const Vocabulary& vocabulary);
Result<std::unique_ptr<const TokenModel>> make_unigram_model(const nlohmann::json& fields,
                                                             const TokenizerFile& file,
                                                             const Vocabulary& vocabulary);
Result<std::unique_ptr<const TokenModel>> make_word_piece_model(const nlohmann::json& fields,
                                                                const TokenizerFile& file,
                                                                const Vocabulary& vocabulary);
Result<std::unique_ptr<const TokenModel>> make_word_level_model(const nlohmann::json& fields,
                                                                const Vocabulary& vocabulary);

}  // namespace pinfer
