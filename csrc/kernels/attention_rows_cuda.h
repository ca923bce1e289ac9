// What the attention kernels share: which rows there are, what they see, and their softmax.
//
// The rows of a request and kv head are its queries times the heads of the group, as on the CPU:
// row = query * group_size + head in group. They share the loads of K and V.
#pragma once

#include <cmath>

#include "csrc/kernels/attention_cuda.h"
#include "csrc/kernels/warp_cuda.h"

namespace pinfer::cuda {

inline constexpr float kLog2E = 1.44269504088896340736f;

struct RequestRows {
  int first_token, num_queries, first_position, group_size, num_rows;

  __device__ __forceinline__ RequestRows(const AttentionTask& task, int request) {
    first_token = task.query_start_loc[request];
    num_queries = task.query_start_loc[request + 1] - first_token;
    first_position = task.seq_lens[request] - num_queries;
    group_size = static_cast<int>(task.num_heads / task.cache.num_kv_heads);
    num_rows = num_queries * group_size;
  }
  // The positions that a row sees: [begin, end).
  __device__ __forceinline__ int end(int row) const {
    return first_position + row / group_size + 1;
  }
  __device__ __forceinline__ int begin(int row, int sliding_window) const {
    const int first = end(row) - sliding_window;
    return sliding_window > 0 && first > 0 ? first : 0;
  }
  // Index of a row's first number in q and out.
  __device__ __forceinline__ int64_t offset(const AttentionTask& task, int kv_head, int row) const {
    const int64_t token = first_token + row / group_size;
    const int64_t head = int64_t{kv_head} * group_size + row % group_size;
    return (token * task.num_heads + head) * task.cache.head_dim;
  }
};

// Index of a position's first number in the cache.
__device__ __forceinline__ int64_t cache_offset(const AttentionTask& task, int request, int kv_head,
                                                int position) {
  const KVCache& cache = task.cache;
  const int block_size = static_cast<int>(cache.block_size);
  const int64_t block = task.block_table[request * task.max_blocks + position / block_size];
  return ((block * cache.num_kv_heads + kv_head) * block_size + position % block_size) *
         padded_head_dim(cache.head_dim);
}

// Eight numbers of a row of q from dim; zeros beyond the head and for rows that are none.
template <class T>
__device__ __forceinline__ Eight<T> load_q(const AttentionTask& task, int64_t offset, int dim,
                                           bool is_row) {
  Eight<T> eight = {};
  const int head_dim = static_cast<int>(task.cache.head_dim);
  if (!is_row) return eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = dim + 2 * i;
    const float first = at < head_dim ? load_float(task.q, offset + at, task.dtype) : 0.0f;
    const float second = at + 1 < head_dim ? load_float(task.q, offset + at + 1, task.dtype) : 0.0f;
    eight.pairs[i] = pack<T>(first, second);
  }
  return eight;
}

// Products of q and k as logarithms to base 2 of their weights.
struct Scores {
  float inner, outer;  // outer: 0 without a soft cap

  __device__ __forceinline__ explicit Scores(const AttentionTask& task) {
    const float cap = task.logit_softcap, scale = task.scale * task.cache.k_scale * kLog2E;
    inner = cap == 0 ? scale : 2 * scale / cap;
    outer = cap * kLog2E;
  }
  __device__ __forceinline__ float operator()(float product) const {
    const float x = product * inner;
    if (outer == 0) return x;
    return outer * (1 - divide_fast(2, exp2_fast(x) + 1));  // tanh
  }
};

// A row's softmax so far: weights are 2^(score - maximum). NaN is passed over in maxima and comes
// back with the weights.
struct RowState {
  float maximum = -INFINITY, sum = 0;

  // What weights are relative to: finite, where nothing has been seen.
  static __device__ __forceinline__ float base(float maximum) {
    return maximum == -INFINITY ? 0.0f : maximum;
  }
  // Raises the maximum and returns what earlier weights are multiplied by.
  __device__ __forceinline__ float raise(float other_maximum) {
    const float raised = fmaxf(maximum, other_maximum);
    const float factor = exp2_fast(maximum - base(raised));
    maximum = raised;
    sum *= factor;
    return factor;
  }
};

}  // namespace pinfer::cuda
