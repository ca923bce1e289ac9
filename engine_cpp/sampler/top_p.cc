#include "sampler/top_p.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace pinfer {
namespace {

// Rank of a candidate as a number: smaller for a greater logit, then for a smaller index.
uint64_t rank_key(float logit, size_t index) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0F);  // -0 becomes +0
  // Ascending bits for descending values: positive ones are flipped, negative ones lose the sign.
  const uint32_t descending = (bits >> 31) != 0 ? bits : ~bits & 0x7FFFFFFFU;
  return (static_cast<uint64_t>(descending) << 32) | static_cast<uint32_t>(index);
}

}  // namespace

void apply_top_p(double top_p, Candidates& candidates, TopPScratch& scratch) {
  const std::vector<int64_t>& weights = candidates.weights;
  const int64_t total = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  const auto limit = static_cast<int64_t>(std::ceil(top_p * static_cast<double>(total)));
  scratch.resize(candidates.size());
  for (size_t i = 0; i < scratch.size(); ++i) scratch[i] = rank_key(candidates.logits[i], i);

  // Halves the range that holds the last one to stay: the first whose sum, with all before it,
  // reaches the limit. Nothing is sorted.
  auto begin = scratch.begin();
  auto end = scratch.end();
  int64_t sum_before = 0;
  while (end - begin > 1) {
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end);
    int64_t sum = sum_before;
    for (auto key = begin; key != middle; ++key) sum += weights[static_cast<uint32_t>(*key)];
    if (sum >= limit) {
      end = middle;
    } else {
      begin = middle;
      sum_before = sum;
    }
  }
  const uint64_t last = *begin;
  candidates.keep_if([&](size_t i) { return rank_key(candidates.logits[i], i) <= last; });
}

}  // namespace pinfer
