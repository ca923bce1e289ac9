#include "sampler/top_k.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sampler/logit_scan.h"

namespace pinfer {

float kth_greatest(std::span<const float> logits, size_t k, std::vector<float>& scratch) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const size_t capacity = std::max<size_t>(2 * k, 1024);
  scratch.clear();
  scratch.reserve(capacity);
  float kth = -kInfinity;  // of those seen so far, once there are k
  // What does not exceed the k-th so far cannot raise it, so it need not be kept.
  float threshold = -kInfinity;
  const auto keep_k = [&] {
    const auto position = scratch.begin() + static_cast<std::ptrdiff_t>(k) - 1;
    std::nth_element(scratch.begin(), position, scratch.end(), std::greater<float>());
    kth = *position;
    threshold = std::nextafter(kth, kInfinity);
    scratch.resize(k);
  };
  for_each_at_least(logits, threshold, [&](size_t i) {
    scratch.push_back(logits[i]);
    if (scratch.size() == capacity) keep_k();
  });
  if (scratch.size() > k || threshold == -kInfinity) keep_k();
  return kth;
}

}  // namespace pinfer
