// Numbers rounded to int8 with one scale: rows of linear layers, K and V of an int8 cache. Included
// after one simd_*.h; see panel_tile.h for what may not be included here.
#pragma once

#include <cstdint>

namespace pinfer {
namespace {

// Smaller numbers are zeros: their reciprocals overflow.
constexpr float kSmallestRowMaximum = 1e-30f;

// The largest |x|; infinite if any is not finite.
inline float largest_magnitude(const float* x, int64_t k) {
  const Simd::F infinite = Simd::set1(__builtin_inff());
  const Simd::I magnitude = Simd::set1_int(0x7fffffff);
  Simd::F largest = Simd::zero();
  int64_t i = 0;
  for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
    const Simd::F value = Simd::as_float(Simd::and_int(Simd::as_int(Simd::load(x + i)), magnitude));
    // A NaN is taken for infinity, which no later number replaces.
    largest = Simd::max(largest, Simd::select(Simd::less(value, infinite), value, infinite));
  }
  float result = Simd::reduce_max(largest);
  for (; i < k; ++i) {
    const float value = __builtin_fabsf(x[i]);
    if (!(value < __builtin_inff())) return __builtin_inff();
    result = value > result ? value : result;
  }
  return result;
}

// x to integers of at most 127 in size; returns the scale, NaN if x holds what is not finite. *sum
// becomes the integers' sum.
inline float quantize(const float* x, int64_t k, int8_t* integers, int32_t* sum) {
  const float largest = largest_magnitude(x, k);
  const bool is_finite = largest < __builtin_inff();
  if (!is_finite || largest < kSmallestRowMaximum) {
    __builtin_memset(integers, 0, static_cast<size_t>(k));
    *sum = 0;
    return is_finite ? 0.0f : __builtin_nanf("");
  }
  const Simd::F inverse = Simd::set1(127.0f / largest);
  Simd::I sums = Simd::set1_int(0);
  int64_t i = 0;
  for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
    const Simd::I rounded = Simd::to_int(Simd::mul(Simd::load(x + i), inverse));
    sums = Simd::add_int(sums, rounded);
    Simd::store_bytes(integers + i, rounded);
  }
  if (i < k) {
    float rest[Simd::kLanes] = {};
    int8_t rest_integers[Simd::kLanes];
    const auto count = static_cast<size_t>(k - i);
    __builtin_memcpy(rest, x + i, count * sizeof(float));
    const Simd::I rounded = Simd::to_int(Simd::mul(Simd::load(rest), inverse));
    sums = Simd::add_int(sums, rounded);
    Simd::store_bytes(rest_integers, rounded);
    __builtin_memcpy(integers + i, rest_integers, count);
  }
  // Exact: the sum of a row's part is a small integer.
  *sum = static_cast<int32_t>(Simd::reduce_add(Simd::to_float(sums)));
  return largest / 127.0f;
}

}  // namespace
}  // namespace pinfer
