// Log-probabilities as the endpoints write them. -inf becomes -9999.0: JSON has no infinity.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pinfer/pinfer.hpp"
#include "server/openai/json_body.h"

namespace pinfer::server {

// Entries of chat's logprobs.content: {"token", "logprob", "bytes", "top_logprobs": [...]}.
Json chat_logprobs(const Engine& engine, std::span<const int32_t> ids,
                   std::span<const TokenLogprobs> logprobs, size_t num_top);

// The completions endpoint's logprobs of a choice, which grow piece by piece:
// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const Engine& engine, size_t num_top) : engine_(engine), num_top_(num_top) {}

  // The prompt's text comes next (echo): offsets of its tokens are places in it.
  void begin_prompt(std::string_view text);
  // A prompt token that nothing predicts (the first): null.
  void add_unpredicted(int32_t id);
  void add(int32_t id, const TokenLogprobs& logprobs);
  // Tokens from now on are output. skip_special_tokens: those add nothing to the text.
  void begin_output(bool skip_special_tokens);
  // What was added since the last call.
  Json take();

 private:
  void add_token(int32_t id);

  const Engine& engine_;
  const size_t num_top_;
  std::string prompt_text_;
  size_t prompt_position_ = 0;  // bytes that tokens have covered
  bool in_prompt_ = false;
  bool skip_special_tokens_ = false;
  int64_t text_offset_ = 0;  // characters
  Json tokens_ = Json::array(), token_logprobs_ = Json::array();
  Json top_logprobs_ = Json::array(), text_offsets_ = Json::array();
};

// vLLM's prompt_logprobs: null for the first token, then {"<id>": {"logprob", "decoded_token"}}.
Json prompt_logprobs(const Engine& engine, std::span<const int32_t> prompt_ids,
                     std::span<const TokenLogprobs> logprobs);

}  // namespace pinfer::server
