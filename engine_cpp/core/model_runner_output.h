// What one model step gave back: one sampled token for each scheduled request that samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pinfer {

struct SampledToken {
  std::string request_id;
  int32_t token_id = -1;
  bool failed = false;  // logits were not finite: the request ends alone, with an error
};

struct ModelRunnerOutput {
  std::vector<SampledToken> sampled_tokens;  // in schedule order, requests with samples == true
};

}  // namespace pinfer
