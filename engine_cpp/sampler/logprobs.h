// Log-probabilities from the raw logits: natural log-softmax, before temperature, penalties,
// biases.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "core/token_logprobs.h"

namespace pinfer {

// The chosen token's log-probability and the k best ones (fewer if the vocabulary is smaller).
// masked_token_ids (sorted) are never listed, but count in the sum. None if the logits are not
// finite (see best_token). REQUIRES: 0 <= chosen < logits.size(). logits: [vocab].
std::optional<TokenLogprobs> log_softmax_top(std::span<const float> logits, int32_t k,
                                             int32_t chosen,
                                             std::span<const int32_t> masked_token_ids = {});

}  // namespace pinfer
