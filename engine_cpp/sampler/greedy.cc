#include "sampler/greedy.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "sampler/cpu_target.h"

namespace pinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 8;
constexpr size_t kNumChains = 4;  // independent, so that the compares overlap

// The compiler's portable vectors.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Mask __attribute__((vector_size(kLanes * sizeof(int32_t))));

struct MaxOfPart {
  float max = -kInfinity;
  bool is_fine = true;  // no NaN, no +inf
};

PINFER_INLINE MaxOfPart max_of_part_loop(const float* logits, size_t num) {
  const Floats infinity = Floats{} + kInfinity;
  Floats max[kNumChains];
  Mask is_fine[kNumChains];
  for (size_t chain = 0; chain < kNumChains; ++chain) {
    max[chain] = -infinity;
    is_fine[chain] = ~Mask{};
  }
  size_t i = 0;
  for (; i + kNumChains * kLanes <= num; i += kNumChains * kLanes) {
    for (size_t chain = 0; chain < kNumChains; ++chain) {
      Floats values;
      std::memcpy(&values, logits + i + chain * kLanes, sizeof(values));
      max[chain] = values > max[chain] ? values : max[chain];
      is_fine[chain] &= values < infinity;  // false for NaN
    }
  }
  MaxOfPart result;
  for (size_t chain = 0; chain < kNumChains; ++chain) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      result.max = max[chain][lane] > result.max ? max[chain][lane] : result.max;
      result.is_fine &= is_fine[chain][lane] != 0;
    }
  }
  for (; i < num; ++i) {
    result.max = logits[i] > result.max ? logits[i] : result.max;
    result.is_fine &= logits[i] < kInfinity;
  }
  return result;
}

PINFER_TARGET_AVX2 MaxOfPart max_of_part_avx2(const float* logits, size_t num) {
  return max_of_part_loop(logits, num);
}

MaxOfPart max_of_part(const float* logits, size_t num) {
  return has_avx2() ? max_of_part_avx2(logits, num) : max_of_part_loop(logits, num);
}

}  // namespace

std::optional<BestToken> best_token(std::span<const float> logits) {
  // Only the first part that holds the maximum is read again, to find it.
  constexpr size_t kPart = 4096;
  float best = -kInfinity;
  size_t best_start = 0;
  for (size_t start = 0; start < logits.size(); start += kPart) {
    const MaxOfPart part =
        max_of_part(logits.data() + start, std::min(kPart, logits.size() - start));
    if (!part.is_fine) return std::nullopt;
    if (part.max > best) {
      best = part.max;
      best_start = start;
    }
  }
  if (best == -kInfinity) return std::nullopt;
  const auto found =
      std::find(logits.begin() + static_cast<std::ptrdiff_t>(best_start), logits.end(), best);
  return BestToken{static_cast<int32_t>(found - logits.begin()), best};
}

}  // namespace pinfer
