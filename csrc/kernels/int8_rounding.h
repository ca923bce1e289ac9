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

// x to integers of at most 127 in size, which `store(i, integer)` gets; returns the scale, NaN if x
// holds what is not finite.
template <class Store>
inline float quantize(const float* x, int64_t k, const Store& store) {
  const float largest = largest_magnitude(x, k);
  const bool is_finite = largest < __builtin_inff();
  if (!is_finite || largest < kSmallestRowMaximum) {
    for (int64_t i = 0; i < k; ++i) store(i, 0);
    return is_finite ? 0.0f : __builtin_nanf("");
  }
  const float inverse = 127.0f / largest;
  alignas(64) int32_t integers[Simd::kLanes];
  int64_t i = 0;
  for (; i + Simd::kLanes <= k; i += Simd::kLanes) {
    Simd::store_int(integers, Simd::to_int(Simd::mul(Simd::load(x + i), Simd::set1(inverse))));
    for (int lane = 0; lane < Simd::kLanes; ++lane) store(i + lane, integers[lane]);
  }
  for (; i < k; ++i) {
    Simd::store_int(integers, Simd::to_int(Simd::set1(x[i] * inverse)));
    store(i, integers[0]);
  }
  return largest / 127.0f;
}

}  // namespace
}  // namespace pinfer
