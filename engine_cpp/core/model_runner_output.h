// What one model step gave back: one sampled token, or the embedding, for each scheduled request
// that reaches its last token, and log-probabilities of prompts where they were asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/token_logprobs.h"

namespace pinfer {

struct SampledToken {
  std::string request_id;
  int32_t token_id = -1;
  bool failed = false;  // logits were not finite: the request ends alone, with an error
  std::optional<TokenLogprobs> logprobs = {};  // if the request asks for them
};

// Of the next prompt tokens of a request, in the order of the prompt.
struct PromptLogprobs {
  std::string request_id;
  std::vector<TokenLogprobs> tokens;
  bool failed = false;  // as above
};

struct Embedding {
  std::string request_id;
  std::vector<float> values = {};
  bool failed = false;  // as above
};

struct ModelRunnerOutput {
  std::vector<SampledToken> sampled_tokens;     // in schedule order, requests with samples == true
  std::vector<PromptLogprobs> prompt_logprobs;  // in schedule order
  std::vector<Embedding> embeddings;            // in schedule order
};

}  // namespace pinfer
