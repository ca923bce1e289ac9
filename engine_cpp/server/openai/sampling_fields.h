// The parameters of a request that completions and chat share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"
#include "server/openai/json_body.h"

namespace pinfer::server {

inline constexpr int32_t kMaxChoices = 128;  // n
inline constexpr size_t kMaxPrompts = 1024;  // of one completions request
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopBytes = 4096;      // of each
inline constexpr int32_t kMaxPromptLogprobs = 20;  // alternatives listed for a prompt token

// Sampling parameters: the body's over `defaults`. Logprobs and max_tokens are read by the
// endpoints, whose rules differ. Throws ApiError.
SamplingParams read_sampling_params(const Fields& body, SamplingParams defaults);

// How the answer is asked for, beside what is sampled.
struct AnswerOptions {
  int32_t num_choices = 1;  // n
  bool stream = false;
  bool include_usage = false;
  bool timings = false;
  int32_t priority = 0;
  std::string cache_salt;
};
AnswerOptions read_answer_options(const Fields& body);

// Cuts the prompt as truncate_prompt_tokens asks (its last tokens stay; -1: what fits).
void truncate_prompt(const Fields& body, int32_t max_model_len, std::vector<int32_t>* prompt);

}  // namespace pinfer::server
