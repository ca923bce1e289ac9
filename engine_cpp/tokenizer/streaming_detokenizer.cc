#include "tokenizer/streaming_detokenizer.h"

#include <algorithm>

#include "tokenizer/tokenizer_parts.h"

namespace pinfer {

namespace {

// A character has at most 4 bytes and a token gives at least one, special ones aside.
constexpr size_t kPromptTail = 8;

}  // namespace

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer,
                                           std::span<const int32_t> prompt_ids,
                                           bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
  if (prompt_ids.empty() || tokenizer.is_special(prompt_ids.back())) return;
  // The end of the prompt is read again: it may stop in the middle of a character.
  std::string ignored;
  for (const int32_t id : prompt_ids.last(std::min(prompt_ids.size(), kPromptTail))) {
    if (tokenizer.has_token(id) && !tokenizer.is_special(id)) {
      tokenizer_.parts_->decoder->add(id, &state_, &ignored);
    }
  }
  state_.from_prompt = state_.unfinished.size();
  state_.is_first = false;
  state_.is_past_strip = true;
  state_.held_ids.clear();
}

std::string StreamingDetokenizer::add(int32_t id) {
  std::string text;
  if (tokenizer_.has_token(id) && !(skip_special_tokens_ && tokenizer_.is_special(id))) {
    tokenizer_.parts_->decoder->add(id, &state_, &text);
  }
  return text;
}

std::string StreamingDetokenizer::finish() {
  std::string text;
  tokenizer_.parts_->decoder->finish(&state_, &text);
  return text;
}

}  // namespace pinfer
