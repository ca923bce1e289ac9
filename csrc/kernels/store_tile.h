// A tile's sums on their way to the output. Included after one simd_*.h; see panel_tile.h for what
// may not be included here.
#pragma once

#include <cstdint>

namespace pinfer {
namespace {

// out[row][0 ... count) = sums[row][0 ... count); a row of sums has `width` floats, a multiple of
// 16.
inline void store_tile(const float* sums, int64_t width, int64_t rows, int64_t count, float* out,
                       int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    if (count == width) {
      for (int64_t i = 0; i < width; i += Simd::kLanes) Simd::store(out + i, Simd::load(sums + i));
    } else {
      __builtin_memcpy(out, sums, static_cast<size_t>(count) * sizeof(float));
    }
    sums += width;
    out += out_stride;
  }
}

}  // namespace
}  // namespace pinfer
