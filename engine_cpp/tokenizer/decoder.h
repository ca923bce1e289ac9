// Token ids back to text.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/text_step.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace pinfer {

// How far a decoder has come in a stream of tokens.
struct DecoderState {
  bool is_first = true;           // no token has been seen: the first may lose its leading space
  std::string unfinished;         // bytes that may become a character
  size_t from_prompt = 0;         // how many of them came with the prompt
  uint32_t num_stripped = 0;      // characters cut from the beginning of the text so far
  bool is_past_strip = false;     // the text has begun: nothing more is cut from its beginning
  std::vector<int32_t> held_ids;  // for decoders that need all tokens at once
};

// Immutable and thread-safe. Special tokens that are to be left out are left out by the caller.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // The text of all tokens.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  // Appends the text that `id` completes.
  virtual void add(int32_t id, DecoderState* state, std::string* text) const = 0;
  // Appends what is left over after the last token.
  virtual void finish(DecoderState* state, std::string* text) const = 0;
  // The bytes that a token adds to text when it is not the first.
  virtual std::string token_bytes(int32_t id) const = 0;
};

// {"type": "bytes"} or {"type": "chain", ...}, as export/tokenizer_decoder.py writes them.
// Everything in `context` and `vocabulary` must outlive the result.
Result<std::unique_ptr<const Decoder>> make_decoder(const nlohmann::json& fields,
                                                    const TextStepContext& context,
                                                    const Vocabulary& vocabulary);

// Moves the characters that state->unfinished holds to `text`: complete ones, and a mark for what
// can be none. A mark that the prompt is to blame for is left out.
void give_out_characters(DecoderState* state, std::string* text);
// The same at the end of the stream: one mark for what is left.
void give_out_rest(DecoderState* state, std::string* text);

// The makers of the two kinds. `surfaces` is what each token is to the decoder: its bytes, or its
// text after the steps that treat every token alike.
std::unique_ptr<const Decoder> make_byte_level_decoder(StringTable surfaces);
Result<std::unique_ptr<const Decoder>> make_chain_decoder(const nlohmann::json& fields,
                                                          const TextStepContext& context,
                                                          StringTable surfaces,
                                                          const Vocabulary& vocabulary);

}  // namespace pinfer
