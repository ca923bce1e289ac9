// Attention of up to 16 rows (queries times heads of a group) over one split of the context, on
// tensor cores: memory-bound, so K and V go from memory straight into fragments, 16 bytes a lane.
//
// K: lane 4 * g + t has eights of token g. The order of dims is free in a product with q.
// V: lane 4 * g + t has the dims 8 * g ... 8 * g + 7 of tokens 2 t, 2 t + 1, 2 t + 8, 2 t + 9;
//    fragment j of a run of 64 dims holds the dims 8 * g + j.
#pragma once

#include "csrc/kernels/attention_combine_cuda.h"

namespace pinfer::cuda {

inline constexpr int kTokensAtATime = 16;  // of a warp; they lie in one block of the cache

// Blocks of a processor, and how many runs of 32 dims of K may be on their way at once, so that the
// compiler keeps everything in registers. For Blackwell it orders loads in a way that takes more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr int split_blocks(int dims) { return dims <= 64 ? 3 : 2; }
constexpr int key_runs(int dims) { return dims <= 128 ? 4 : dims <= 192 ? 2 : 1; }
constexpr bool kRepeatsLastEight = true;
#else
constexpr int split_blocks(int dims) { return dims <= 128 ? 3 : 2; }
constexpr int key_runs(int dims) { return dims <= 128 ? 4 : 2; }
constexpr bool kRepeatsLastEight = false;
#endif

// A fence for the compiler: loads behind it are not done before it.
__device__ __forceinline__ void keep_loads_behind() { __syncwarp(); }

template <class T, class Cache, int kDims>
struct SplitTokens {
  const Cache* numbers;  // of the first token
  int first;             // its position, from the first one that is loaded
  unsigned num_seen;     // that are loaded; others are zeros
  int padded;

  // Beyond the last dim q is zero, and what V gives there is dropped: zeros will do, or the last
  // eight again.
  __device__ __forceinline__ Eight<T> eight(int token, int dim) const {
    if (static_cast<unsigned>(first + token) >= num_seen) return {};
    if (!kRepeatsLastEight && dim >= padded) return {};
    return load_eight<T>(numbers + token * padded + (dim < padded ? dim : padded - 8));
  }
};

// products[j] of the 16 rows and tokens 8 * j ... 8 * j + 7.
template <class T, class Cache, int kDims>
__device__ __forceinline__ void multiply_keys(FragmentC (&products)[2], const uint4* q_eights,
                                              const SplitTokens<T, Cache, kDims>& keys, int lane) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kDims / 32; ++i) {
    if (i > 0 && i % key_runs(kDims) == 0) keep_loads_behind();
    const uint4 row = q_eights[(2 * i) * 32 + lane], row_8 = q_eights[(2 * i + 1) * 32 + lane];
    const uint32_t a[2][4] = {{row.x, row_8.x, row.y, row_8.y}, {row.z, row_8.z, row.w, row_8.w}};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const Eight<T> key = keys.eight(8 * j + g, 32 * i + 8 * t);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_add<T>(products[j], {{a[half][0], a[half][1], a[half][2], a[half][3]}},
                        {{key.pairs[2 * half], key.pairs[2 * half + 1]}});
      }
    }
  }
}

// Adds weights * values for 64 dims.
template <class T>
__device__ __forceinline__ void multiply_values(FragmentC (&values)[8], const FragmentA& weights,
                                                const Eight<T> (&tokens)[4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const uint32_t first = tokens[0].pairs[e], second = tokens[1].pairs[e];
    const uint32_t third = tokens[2].pairs[e], fourth = tokens[3].pairs[e];
    multiply_add<T>(values[2 * e], weights,
                    {{lower_halves(first, second), lower_halves(third, fourth)}});
    multiply_add<T>(values[2 * e + 1], weights,
                    {{upper_halves(first, second), upper_halves(third, fourth)}});
  }
}

template <class Cache, class T, int kDims>
__global__ void __launch_bounds__(kSplitWarps * 32, split_blocks(kDims))
    attend_split_kernel(const SplitArguments a, const int max_rows) {
  const AttentionTask& task = a.task;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int split = static_cast<int>(blockIdx.x) % a.num_splits;
  const int first_row = static_cast<int>(blockIdx.x) / a.num_splits * kSplitRows;
  const int kv_head = static_cast<int>(blockIdx.y), request = static_cast<int>(blockIdx.z);
  const RequestRows rows(task, request);
  if (first_row >= rows.num_rows) return;
  const int left = rows.num_rows - first_row;
  const int num_rows = left < kSplitRows ? left : kSplitRows;
  const int last_row = first_row + num_rows - 1;
  // What the block's rows see of this split.
  const int split_begin = split * a.split_size, split_end = split_begin + a.split_size;
  const int seen_begin = rows.begin(first_row, task.sliding_window), seen_end = rows.end(last_row);
  const int low = seen_begin > split_begin ? seen_begin : split_begin;
  const int high = seen_end < split_end ? seen_end : split_end;
  if (low >= high && a.num_splits > 1) return;  // merging passes it over

  uint4* q_eights = reinterpret_cast<uint4*>(shared_memory());  // [kDims / 32, 2, lanes]
  for (int i = warp; i < kDims / 16; i += kSplitWarps) {
    const int row = first_row + i % 2 * 8 + g;
    const bool is_row = row <= last_row;
    const Eight<T> eight = load_q<T>(task, rows.offset(task, kv_head, is_row ? row : first_row),
                                     i / 2 * 32 + 8 * t, is_row);
    q_eights[i * 32 + lane] = {eight.pairs[0], eight.pairs[1], eight.pairs[2], eight.pairs[3]};
  }
  __syncthreads();

  // What the lane's rows see of it.
  int row_begin[2], row_end[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + 8 * h + g;
    const int begin = row <= last_row ? rows.begin(row, task.sliding_window) : 0;
    const int end = row <= last_row ? rows.end(row) : 0;
    row_begin[h] = begin > low ? begin : low;
    row_end[h] = end < high ? end : high;
  }
  const Scores to_score(task);
  RowState states[2];
  FragmentC values[kDims / 64][8] = {};
  const int padded = static_cast<int>(padded_head_dim(task.cache.head_dim));
#pragma unroll 1
  for (int first = low / kTokensAtATime * kTokensAtATime + warp * kTokensAtATime; first < high;
       first += kSplitWarps * kTokensAtATime) {
    const int64_t offset = cache_offset(task, request, kv_head, first);
    const auto num_seen = static_cast<unsigned>(high - low);
    const SplitTokens<T, Cache, kDims> keys = {static_cast<const Cache*>(task.cache.k) + offset,
                                               first - low, num_seen, padded};
    const SplitTokens<T, Cache, kDims> value_rows = {
        static_cast<const Cache*>(task.cache.v) + offset, first - low, num_seen, padded};
    FragmentC scores[2] = {};
    multiply_keys<T, Cache, kDims>(scores, q_eights, keys, lane);

    float maxima[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int position = first + i / 4 * 8 + 2 * t + i % 2, h = i % 4 / 2;
      const bool is_seen = position >= row_begin[h] && position < row_end[h];
      float& x = scores[i / 4].r[i % 4];
      x = is_seen ? to_score(x) : -INFINITY;
      maxima[h] = fmaxf(maxima[h], x);
    }
    float factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) factors[h] = states[h].raise(max_lanes<4>(maxima[h]));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& x = scores[i / 4].r[i % 4];
      x = exp2_fast(x - RowState::base(states[i % 4 / 2].maximum));
      states[i % 4 / 2].sum += x;
    }
    const FragmentA weights = {
        {pack<T>(scores[0].r[0], scores[0].r[1]), pack<T>(scores[0].r[2], scores[0].r[3]),
         pack<T>(scores[1].r[0], scores[1].r[1]), pack<T>(scores[1].r[2], scores[1].r[3])}};
#pragma unroll
    for (int i = 0; i < kDims / 64; ++i) {
      if (i > 0) keep_loads_behind();
      Eight<T> tokens[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        tokens[v] = value_rows.eight(2 * t + v % 2 + v / 2 * 8, 64 * i + 8 * g);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) values[i][j].r[c] *= factors[c / 2];
      }
      multiply_values<T>(values[i], weights, tokens);
    }
  }

  const WarpStates left_states(reinterpret_cast<float*>(q_eights + kDims / 16 * 32), max_rows);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_lanes<4>(states[h].sum);
    const int row = 8 * h + g;
    if (row >= num_rows) continue;
    if (t == 0) {
      left_states.maxima[warp * max_rows + row] = states[h].maximum;
      left_states.sums[warp * max_rows + row] = sum;
    }
#pragma unroll
    for (int i = 0; i < kDims / 8; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int dim = i / 8 * 64 + 8 * (2 * t + c) + i % 8;
        left_states.values[(warp * max_rows + row) * kDims + dim] =
            values[i / 8][i % 8].r[2 * h + c];
      }
    }
  }
  __syncthreads();
  combine_warps(a, left_states, rows, kv_head, first_row, num_rows, split, max_rows, kDims);
}

template <class Cache, class T>
int32_t launch_split(const SplitArguments& a, int64_t rows, Stream stream) {
  const int max_rows = static_cast<int>(rows < kSplitRows ? rows : kSplitRows);
  const dim3 grid(static_cast<unsigned>(a.num_splits * a.num_row_tiles),
                  static_cast<unsigned>(a.task.cache.num_kv_heads),
                  static_cast<unsigned>(a.task.num_requests));
  const auto start = [&](auto* kernel, int dims) {
    const size_t q_bytes = static_cast<size_t>(dims / 16) * 32 * sizeof(uint4);
    return launch("attend_split", kernel, grid, kSplitWarps * 32,
                  q_bytes + WarpStates::bytes(max_rows, dims), stream, a, max_rows);
  };
  const int64_t head_dim = a.task.cache.head_dim;
  if (head_dim <= 64) return start(&attend_split_kernel<Cache, T, 64>, 64);
  if (head_dim <= 128) return start(&attend_split_kernel<Cache, T, 128>, 128);
  if (head_dim <= 192) return start(&attend_split_kernel<Cache, T, 192>, 192);
  return start(&attend_split_kernel<Cache, T, 256>, 256);
}

}  // namespace pinfer::cuda
