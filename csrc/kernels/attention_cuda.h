// What the launchers of attention hand to the kernels of each cache dtype.
#pragma once

#include "csrc/kernels/kernels_cuda.h"

namespace pinfer::cuda {

inline constexpr int kSplitWarps = 4;
inline constexpr int kSplitRows = 16;        // of a block: one tile of the tensor cores
inline constexpr int kSplitFloat32Rows = 4;  // of a block that sums in float32
inline constexpr int kPrefillRows = 64;      // of a block: 16 of each of 4 warps

struct SplitArguments {
  AttentionTask task;
  int split_size, num_splits, num_row_tiles;
  // Where num_splits > 1, for each row of q and out and each split:
  float* states;  // [num_tokens, num_heads, num_splits, 2] maximum, sum
  float* values;  // [num_tokens, num_heads, num_splits, padded head_dim]
};

int32_t attend_split_float32(const SplitArguments& a, int64_t rows, Stream stream);
int32_t attend_split_bfloat16(const SplitArguments& a, int64_t rows, Stream stream);
int32_t attend_split_float16(const SplitArguments& a, int64_t rows, Stream stream);
int32_t attend_split_float8(const SplitArguments& a, int64_t rows, Stream stream);
int32_t merge_splits(const SplitArguments& a, int64_t max_rows, Stream stream);

int32_t attend_prefill_bfloat16(const AttentionTask& task, Stream stream);
int32_t attend_prefill_float16(const AttentionTask& task, Stream stream);
int32_t attend_prefill_float8(const AttentionTask& task, Stream stream);

}  // namespace pinfer::cuda
