// The splits of a row become its output.
#include "csrc/kernels/attention_rows_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr unsigned kThreads = 128;

__global__ void __launch_bounds__(kThreads) merge_splits_kernel(const SplitArguments a) {
  const AttentionTask& task = a.task;
  const int request = static_cast<int>(blockIdx.z), query = static_cast<int>(blockIdx.y);
  const RequestRows rows(task, request);
  if (query >= rows.num_queries) return;
  const int kv_head = static_cast<int>(blockIdx.x) / rows.group_size;
  const int row = query * rows.group_size + static_cast<int>(blockIdx.x) % rows.group_size;
  const int head_dim = static_cast<int>(task.cache.head_dim);
  const int padded = static_cast<int>(padded_head_dim(head_dim));
  const int64_t offset = rows.offset(task, kv_head, row);
  const int64_t first_state = offset / head_dim * a.num_splits;
  // Splits that the row sees nothing of may not have been written.
  const int begin = rows.begin(row, task.sliding_window), end = rows.end(row);
  const int first = begin / a.split_size;
  const int last = (end + a.split_size - 1) / a.split_size;  // not included
  const int num_splits = last < a.num_splits ? last : a.num_splits;

  float maximum = -INFINITY, sum = 0;
  for (int i = first; i < num_splits; ++i) {
    maximum = fmaxf(maximum, a.states[2 * (first_state + i)]);
  }
  for (int i = first; i < num_splits; ++i) {
    const float* state = a.states + 2 * (first_state + i);
    sum += exp2_fast(state[0] - RowState::base(maximum)) * state[1];
  }
  for (int dim = static_cast<int>(threadIdx.x); dim < head_dim; dim += kThreads) {
    float value = 0;
    for (int i = first; i < num_splits; ++i) {
      const float factor = exp2_fast(a.states[2 * (first_state + i)] - RowState::base(maximum));
      value += factor * a.values[(first_state + i) * padded + dim];
    }
    store_float(task.out, offset + dim, task.dtype,
                sum == 0 ? 0.0f : value / sum * task.cache.v_scale);
  }
}

}  // namespace

int32_t merge_splits(const SplitArguments& a, int64_t max_rows, Stream stream) {
  const dim3 grid(static_cast<unsigned>(a.task.num_heads), static_cast<unsigned>(max_rows),
                  static_cast<unsigned>(a.task.num_requests));
  return launch("merge_splits", &merge_splits_kernel, grid, kThreads, 0, stream, a);
}

}  // namespace pinfer::cuda
