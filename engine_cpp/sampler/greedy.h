// The best token, and whether the logits can be sampled from at all.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace pinfer {

struct BestToken {
  int32_t token_id = 0;
  float logit = 0.0F;
};

// The token with the greatest logit; equal ones: the lowest id. None if any logit is NaN or +inf,
// or all are -inf, or there are none. logits: [vocab].
std::optional<BestToken> best_token(std::span<const float> logits);

}  // namespace pinfer
