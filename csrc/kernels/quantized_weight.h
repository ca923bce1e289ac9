// How quantised weights lie in memory: panels of 16 outputs, padded with zeros, every row of bytes
// 64 long. Outputs stand side by side, four numbers of k (a step) to each, so that one register
// holds what one instruction multiplies.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels.h"

namespace pinfer {

inline constexpr int64_t kByteRow = 64;  // 16 outputs, 4 bytes each

// int8, symmetric, one scale an output:
//   float32 scale[16], int32 sum[16] (of the output's numbers), int8 [steps][16][4]
struct Int8Layout {
  static constexpr int64_t kNumbersPerRow = 4;
  static constexpr int64_t kHeaderBytes = 2 * kByteRow;

  static constexpr int64_t steps(int64_t k) { return (k + kNumbersPerRow - 1) / kNumbersPerRow; }
  static constexpr int64_t panel_bytes(int64_t k) { return kHeaderBytes + steps(k) * kByteRow; }
};

// int4, groups of `group_size` numbers (a multiple of 32) with a scale and a minimum of their own:
// a number is scale * nibble + minimum. Each group:
//   float16 scale[16], float16 minimum[16], nibbles [group_size / 8][16][4]
// A byte of the row of numbers 8i ... 8i + 7 holds number 8i + j (low) and 8i + 4 + j (high).
struct Int4Layout {
  static constexpr int64_t kNumbersPerRow = 8;
  static constexpr int64_t kHeaderBytes = kByteRow;

  static constexpr int64_t groups(int64_t k, int64_t group_size) {
    return (k + group_size - 1) / group_size;
  }
  static constexpr int64_t group_bytes(int64_t group_size) {
    return kHeaderBytes + group_size / kNumbersPerRow * kByteRow;
  }
  static constexpr int64_t panel_bytes(int64_t k, int64_t group_size) {
    return groups(k, group_size) * group_bytes(group_size);
  }
};

inline constexpr int64_t kMaxInt8Inputs = 131072;  // sums of products fit 32 bits

}  // namespace pinfer
