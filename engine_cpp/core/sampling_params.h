// What a request asks of the sampler and of the end rules. One field list; the Python twin
// (runtime/core/sampling_params.py) has the same names, types and defaults.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"

namespace pinfer {

// Temperatures up to this one mean greedy: the best token always wins.
inline constexpr double kGreedyTemperature = 1e-5;

// A plain value: copy it, read it from any thread.
struct SamplingParams {
  double temperature = 1.0;                // >= 0; 0 = greedy
  double top_p = 1.0;                      // (0, 1]; 1 = off
  int32_t top_k = 0;                       // 0 or -1 = off
  double min_p = 0.0;                      // [0, 1]; 0 = off
  double presence_penalty = 0.0;           // [-2, 2], over generated tokens
  double frequency_penalty = 0.0;          // [-2, 2], over generated tokens
  double repetition_penalty = 1.0;         // > 0, over prompt and generated tokens; 1 = off
  std::map<int32_t, double> logit_bias;    // token id -> [-100, 100]
  std::vector<int32_t> allowed_token_ids;  // empty = every id
  std::vector<std::vector<int32_t>> bad_words_token_ids;  // sequences that are never completed
  std::optional<int64_t> seed;                            // none = random
  int32_t max_tokens = 16;                                // >= 1
  int32_t min_tokens = 0;  // [0, max_tokens]: no end id is sampled before
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> stop;
  std::optional<int32_t> logprobs;         // the N best with each sampled token; none = off
  std::optional<int32_t> prompt_logprobs;  // the same with each prompt token but the first

  // INVALID_ARGUMENT naming the field, the range and what was found.
  Status validate() const;

  // The same for ids of logit_bias and allowed_token_ids that the vocabulary does not have.
  Status validate_token_ids(int32_t vocab_size) const;

  bool is_greedy() const { return temperature <= kGreedyTemperature; }

  // The field list: visit(name, pointer to member) for each field in order.
  template <typename Visitor>
  static void for_each_field(Visitor&& visit) {
    visit("temperature", &SamplingParams::temperature);
    visit("top_p", &SamplingParams::top_p);
    visit("top_k", &SamplingParams::top_k);
    visit("min_p", &SamplingParams::min_p);
    visit("presence_penalty", &SamplingParams::presence_penalty);
    visit("frequency_penalty", &SamplingParams::frequency_penalty);
    visit("repetition_penalty", &SamplingParams::repetition_penalty);
    visit("logit_bias", &SamplingParams::logit_bias);
    visit("allowed_token_ids", &SamplingParams::allowed_token_ids);
    visit("bad_words_token_ids", &SamplingParams::bad_words_token_ids);
    visit("seed", &SamplingParams::seed);
    visit("max_tokens", &SamplingParams::max_tokens);
    visit("min_tokens", &SamplingParams::min_tokens);
    visit("ignore_eos", &SamplingParams::ignore_eos);
    visit("stop_token_ids", &SamplingParams::stop_token_ids);
    visit("stop", &SamplingParams::stop);
    visit("logprobs", &SamplingParams::logprobs);
    visit("prompt_logprobs", &SamplingParams::prompt_logprobs);
  }
};

}  // namespace pinfer
