#include "server/openai/prompt_limit.h"

#include <algorithm>

#include "server/api_error.h"

namespace pinfer::server {

void PromptLimit::check(const std::string& text, const std::string& param) const {
  constexpr size_t kTokenOfAnyVocabulary = 16;  // bytes that the longest one has at least
  const auto max_tokens = static_cast<size_t>(max_model_len_);
  if (text.size() <= max_tokens * kTokenOfAnyVocabulary) return;
  const size_t longest = std::max(longest_token(), kTokenOfAnyVocabulary);
  if (text.size() <= max_tokens * longest) return;
  throw ApiError(400,
                 "the text has " + std::to_string(text.size()) + " bytes, the context holds " +
                     std::to_string(max_tokens) + " tokens of at most " + std::to_string(longest) +
                     " bytes",
                 param, "context_length_exceeded");
}

size_t PromptLimit::longest_token() const {
  std::call_once(looked_up_, [this] {
    for (int32_t id = 0; id < vocab_size_; ++id) {
      try {
        longest_token_ = std::max(longest_token_, engine_->token_bytes(id).size());
      } catch (const Error&) {  // an id without a token
      }
    }
  });
  return longest_token_;
}

}  // namespace pinfer::server
