// How quantised weights lie in memory: panels of 16 outputs, padded with zeros, cut into blocks of
// numbers of k. A block begins with 64 bytes of scales; rows of 64 bytes follow, in which outputs
// stand side by side with four numbers of k (int8) or eight (int4) to each, so that a register
// holds what one instruction multiplies.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels.h"

namespace pinfer {

inline constexpr int64_t kByteRow = 64;  // 16 outputs, 4 bytes each

// Numbers that share a scale: of rows of x always, of int8 weights too.
inline constexpr int64_t kQuantizedGroup = 32;

// int8, symmetric: a number is scale * integer. Blocks of two groups:
//   float16 scale[2][16], int8 [2][8][16][4]
struct Int8Layout {
  static constexpr int64_t kNumbersPerRow = 4;
  static constexpr int64_t kBlockSize = 2 * kQuantizedGroup;
  static constexpr int64_t kBlockBytes = kByteRow + kBlockSize / kNumbersPerRow * kByteRow;

  static constexpr int64_t blocks(int64_t k) { return (k + kBlockSize - 1) / kBlockSize; }
  static constexpr int64_t panel_bytes(int64_t k) { return blocks(k) * kBlockBytes; }
};

// int4: a number is scale * nibble + minimum. Blocks of one group of `group_size` numbers, a
// multiple of 32:
//   float16 scale[16], float16 minimum[16], nibbles [group_size / 8][16][4]
// A byte of the row of numbers 8i ... 8i + 7 holds number 8i + j (low) and 8i + 4 + j (high).
struct Int4Layout {
  static constexpr int64_t kNumbersPerRow = 8;

  static constexpr int64_t blocks(int64_t k, int64_t group_size) {
    return (k + group_size - 1) / group_size;
  }
  static constexpr int64_t block_bytes(int64_t group_size) {
    return kByteRow + group_size / kNumbersPerRow * kByteRow;
  }
  static constexpr int64_t panel_bytes(int64_t k, int64_t group_size) {
    return blocks(k, group_size) * block_bytes(group_size);
  }
};

}  // namespace pinfer
