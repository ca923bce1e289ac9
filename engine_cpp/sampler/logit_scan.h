// Visits the few logits that reach a threshold, without looking at each of the others.
#pragma once

#include <cstddef>
#include <span>

namespace pinfer {

// Calls visit(index) for each logit >= threshold, in order. visit may raise the threshold, which is
// read again after at most 16 logits. NaN reaches nothing.
template <typename Visit>
void for_each_at_least(std::span<const float> logits, const float& threshold, Visit visit) {
  constexpr size_t kPart = 16;
  size_t i = 0;
  for (; i + kPart <= logits.size(); i += kPart) {
    const float least = threshold;
    int num_found = 0;
    for (size_t j = 0; j < kPart; ++j) num_found += logits[i + j] >= least;
    if (num_found == 0) continue;
    for (size_t j = 0; j < kPart; ++j) {
      if (logits[i + j] >= threshold) visit(i + j);
    }
  }
  for (; i < logits.size(); ++i) {
    if (logits[i] >= threshold) visit(i);
  }
}

}  // namespace pinfer
