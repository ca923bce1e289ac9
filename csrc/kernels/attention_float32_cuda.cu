// Split attention over caches of float32, for tests and for comparisons of whole models: plain
// sums, a token of a warp at a time, K and V shared by up to four rows.
#include "csrc/kernels/attention_combine_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr int kRows = kSplitFloat32Rows;
constexpr int kDims = static_cast<int>(kMaxCudaHeadDim);
constexpr int kVectors = kDims / 128;  // of a lane, of four dims each

struct LaneRow {
  float values[kVectors * 4];
};

// A lane's dims: 128 * i + 4 * lane ... 3 more.
__device__ __forceinline__ LaneRow load_row(const float* row, int lane, int padded) {
  LaneRow result = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int dim = 128 * i + 4 * lane;
    if (dim >= padded) continue;
    const float4 four = *reinterpret_cast<const float4*>(row + dim);
    result.values[4 * i] = four.x;
    result.values[4 * i + 1] = four.y;
    result.values[4 * i + 2] = four.z;
    result.values[4 * i + 3] = four.w;
  }
  return result;
}

__global__ void __launch_bounds__(kSplitWarps * 32)
    attend_split_float32_kernel(const SplitArguments a) {
  const AttentionTask& task = a.task;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int split = static_cast<int>(blockIdx.x) % a.num_splits;
  const int first_row = static_cast<int>(blockIdx.x) / a.num_splits * kRows;
  const int kv_head = static_cast<int>(blockIdx.y), request = static_cast<int>(blockIdx.z);
  const RequestRows rows(task, request);
  if (first_row >= rows.num_rows) return;
  const int left = rows.num_rows - first_row;
  const int num_rows = left < kRows ? left : kRows;
  const int split_begin = split * a.split_size, split_end = split_begin + a.split_size;
  const int seen_begin = rows.begin(first_row, task.sliding_window);
  const int seen_end = rows.end(first_row + num_rows - 1);
  const int low = seen_begin > split_begin ? seen_begin : split_begin;
  const int high = seen_end < split_end ? seen_end : split_end;
  if (low >= high && a.num_splits > 1) return;

  const int head_dim = static_cast<int>(task.cache.head_dim);
  const int padded = static_cast<int>(padded_head_dim(head_dim));
  LaneRow q[kRows] = {}, values[kRows] = {};
  const Scores to_score(task);
  RowState states[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= num_rows) continue;
    const int64_t offset = rows.offset(task, kv_head, first_row + r);
#pragma unroll
    for (int i = 0; i < kVectors * 4; ++i) {
      const int dim = i / 4 * 128 + 4 * lane + i % 4;
      if (dim < head_dim) q[r].values[i] = load_float(task.q, offset + dim, task.dtype);
    }
  }
  for (int position = low + warp; position < high; position += kSplitWarps) {
    const int64_t offset = cache_offset(task, request, kv_head, position);
    const LaneRow key = load_row(static_cast<const float*>(task.cache.k) + offset, lane, padded);
    const LaneRow value = load_row(static_cast<const float*>(task.cache.v) + offset, lane, padded);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kVectors * 4; ++i) product += q[r].values[i] * key.values[i];
      product = sum_lanes<32>(product);
      if (r >= num_rows || position < rows.begin(first_row + r, task.sliding_window) ||
          position >= rows.end(first_row + r)) {
        continue;  // the same for the whole warp
      }
      const float x = to_score(product);
      const float factor = states[r].raise(x);
      const float weight = exp2_fast(x - RowState::base(states[r].maximum));
      states[r].sum += weight;
#pragma unroll
      for (int i = 0; i < kVectors * 4; ++i) {
        values[r].values[i] = values[r].values[i] * factor + weight * value.values[i];
      }
    }
  }

  const WarpStates left_states(reinterpret_cast<float*>(shared_memory()), kRows);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (lane == 0) {
      left_states.maxima[warp * kRows + r] = states[r].maximum;
      left_states.sums[warp * kRows + r] = states[r].sum;
    }
#pragma unroll
    for (int i = 0; i < kVectors * 4; ++i) {
      const int dim = i / 4 * 128 + 4 * lane + i % 4;
      left_states.values[(warp * kRows + r) * kDims + dim] = values[r].values[i];
    }
  }
  __syncthreads();
  combine_warps(a, left_states, rows, kv_head, first_row, num_rows, split, kRows, kDims);
}

}  // namespace

int32_t attend_split_float32(const SplitArguments& a, int64_t, Stream stream) {
  const dim3 grid(static_cast<unsigned>(a.num_splits * a.num_row_tiles),
                  static_cast<unsigned>(a.task.cache.num_kv_heads),
                  static_cast<unsigned>(a.task.num_requests));
  return launch("attend_split", &attend_split_float32_kernel, grid, kSplitWarps * 32,
                WarpStates::bytes(kRows, kDims), stream, a);
}

}  // namespace pinfer::cuda
