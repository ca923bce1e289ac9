// The end of a split: the softmax of the block's warps, which saw different tokens, becomes one.
#pragma once

#include "csrc/kernels/attention_rows_cuda.h"

namespace pinfer::cuda {

// Shared memory in which warps leave their states: [warps, rows] twice, then [warps, rows, dims].
struct WarpStates {
  float* maxima;
  float* sums;
  float* values;

  __device__ __forceinline__ WarpStates(float* memory, int rows)
      : maxima(memory),
        sums(memory + kSplitWarps * rows),
        values(memory + 2 * kSplitWarps * rows) {}
  static constexpr size_t bytes(int64_t rows, int dims) {
    return sizeof(float) * static_cast<size_t>(kSplitWarps * rows * (2 + dims));
  }
};

// Writes the rows of a block: to out, or as states of this split. The last to be called by all of
// its threads, behind a barrier.
__device__ __forceinline__ void combine_warps(const SplitArguments& a, const WarpStates& states,
                                              const RequestRows& request, int kv_head,
                                              int first_row, int num_rows, int split, int max_rows,
                                              int dims) {
  const int head_dim = static_cast<int>(a.task.cache.head_dim);
  const int padded = static_cast<int>(padded_head_dim(head_dim));
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * padded; i += kSplitWarps * 32) {
    const int row = i / padded, dim = i % padded;
    float maximum = -INFINITY, sum = 0, value = 0;
    for (int w = 0; w < kSplitWarps; ++w) {
      maximum = fmaxf(maximum, states.maxima[w * max_rows + row]);
    }
    for (int w = 0; w < kSplitWarps; ++w) {
      const float factor = exp2_fast(states.maxima[w * max_rows + row] - RowState::base(maximum));
      sum += factor * states.sums[w * max_rows + row];
      value += factor * states.values[(w * max_rows + row) * dims + dim];
    }
    const int64_t offset = request.offset(a.task, kv_head, first_row + row);
    if (a.num_splits == 1) {
      const float weighted = sum == 0 ? 0.0f : value / sum * a.task.cache.v_scale;
      if (dim < head_dim) store_float(a.task.out, offset + dim, a.task.dtype, weighted);
    } else {
      const int64_t at = offset / head_dim * a.num_splits + split;
      a.values[at * padded + dim] = value;
      if (dim == 0) {
        a.states[2 * at] = maximum;
        a.states[2 * at + 1] = sum;
      }
    }
  }
}

}  // namespace pinfer::cuda
