// top_k: the k tokens with the greatest logits; all that equal the k-th are kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pinfer {

// The k-th greatest of the logits. One pass; at most 2 k (or 1024) of them are kept.
// scratch is memory to reuse. REQUIRES: 1 <= k <= logits.size(), no NaN.
float kth_greatest(std::span<const float> logits, size_t k, std::vector<float>& scratch);

}  // namespace pinfer
