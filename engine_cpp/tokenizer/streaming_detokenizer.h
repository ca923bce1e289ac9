// Text of a generation, token by token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/decoder.h"
#include "tokenizer/tokenizer.h"

namespace pinfer {

// Turns one request's output tokens into pieces of text. The pieces, with finish(), join to
// decode() of the same ids; a character is given out as soon as its last byte is there, and bytes
// that can belong to no character become U+FFFD at once, so at most 3 bytes are held back.
// The one difference to decode(): where byte-fallback tokens form an invalid run, valid characters
// in it stay (the reference marks every byte of the run; a stream has already sent them).
//
// Output that follows prompt text keeps its leading space; output after a special token (as chat
// templates end) begins like a text of its own.
//
// Not thread-safe. The tokenizer must outlive it.
class StreamingDetokenizer {
 public:
  StreamingDetokenizer(const Tokenizer& tokenizer, std::span<const int32_t> prompt_ids,
                       bool skip_special_tokens);

  // The new text; often empty in the middle of a character. Ids without a token add nothing.
  std::string add(int32_t id);
  // The rest: an unfinished character as U+FFFD. Call it once, after the last token.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  DecoderState state_;
};

}  // namespace pinfer
