// What one step, or an abort, means for one request: what the engine passes on to its caller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/token_logprobs.h"

namespace pinfer {

struct RequestOutput {
  std::string request_id = {};
  std::vector<int32_t> new_token_ids = {};
  std::vector<TokenLogprobs> new_logprobs = {};     // one for each new token, or none
  std::vector<TokenLogprobs> prompt_logprobs = {};  // of the next prompt tokens (after the first)
  std::vector<float> embedding = {};                // of a request that asks for it, at its end
  std::string finish_reason = {};  // "stop", "length", "abort", "error"; "" while it goes on
  std::optional<int32_t> stop_reason = {};  // the stop id that ended it
  int32_t num_cached_tokens = 0;            // prompt tokens that the prefix cache supplied

  bool finished() const { return !finish_reason.empty(); }
};

}  // namespace pinfer
