// Attention of tiles of 64 rows (queries times heads of a group) on tensor cores: K and V come into
// shared memory in tiles, the softmax is taken on the way.
//
// While a warp multiplies q and K, the tile of V is on its way; while it takes the softmax and
// multiplies V, the next tile of K. Only tiles that some row of the block sees are loaded, and of
// those only positions that some row sees: what lies around may be another request's, or NaN.
#pragma once

#include "csrc/kernels/attention_rows_cuda.h"

namespace pinfer::cuda {

inline constexpr int kPrefillWarps = 4;
inline constexpr int kPrefillThreads = kPrefillWarps * 32;

// Tokens of a tile, and shared memory in numbers of 16 bits. Rows are 8 numbers apart from what
// would put the same columns of all into the same banks.
template <int kDims>
struct PrefillShape {
  static constexpr int kKeys = kDims <= 128 ? 64 : 32;
  static constexpr int kStride = kDims + 8;
  static constexpr size_t kBytes =
      size_t{2} * (kPrefillRows + 2 * kKeys) * kStride + 2 * kKeys * sizeof(int64_t);
};

// A tile's positions and where they lie in the cache.
struct PrefillTile {
  int first, low, high;  // positions in [low, high) are loaded, others are zeros
  const int64_t* offsets;
  int padded;
};

// Brings a tile of K or V into shared memory: asynchronously, or, where numbers are converted, at
// once.
template <class Cache, class T, int kDims>
__device__ __forceinline__ void load_tile(const void* cache, const PrefillTile& tile, T* to) {
  using Shape = PrefillShape<kDims>;
  constexpr int kEights = kDims / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Shape::kKeys * kEights; i += kPrefillThreads) {
    const int key = i / kEights, dim = i % kEights * 8;
    const int position = tile.first + key;
    const bool is_valid = position >= tile.low && position < tile.high && dim < tile.padded;
    const Cache* from = static_cast<const Cache*>(cache);
    if (is_valid) from += tile.offsets[key] + dim;
    T* place = to + key * Shape::kStride + dim;
    if constexpr (std::is_same_v<Cache, T>) {
      copy_16_bytes(place, from, is_valid);
    } else {
      const Eight<T> eight = is_valid ? load_eight<T>(from) : Eight<T>{};
      *reinterpret_cast<uint4*>(place) = {eight.pairs[0], eight.pairs[1], eight.pairs[2],
                                          eight.pairs[3]};
    }
  }
}

// scores = q * K^T of a warp's 16 rows and a tile.
template <class T, int kDims>
__device__ __forceinline__ void multiply_tile_keys(
    FragmentC (&scores)[PrefillShape<kDims>::kKeys / 8], const T* q, const T* keys, int lane) {
  using Shape = PrefillShape<kDims>;
#pragma unroll
  for (int d = 0; d < kDims; d += 16) {
    const FragmentA rows = load_matrices<false>(q + lane % 16 * Shape::kStride + d + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < Shape::kKeys / 16; ++j) {
      const int key = j * 16 + lane % 8 + lane / 16 * 8;
      const FragmentA two =
          load_matrices<false>(keys + key * Shape::kStride + d + lane / 8 % 2 * 8);
      multiply_add<T>(scores[2 * j], rows, {{two.r[0], two.r[1]}});
      multiply_add<T>(scores[2 * j + 1], rows, {{two.r[2], two.r[3]}});
    }
  }
}

// values += weights * V.
template <class T, int kDims>
__device__ __forceinline__ void multiply_tile_values(
    FragmentC (&values)[kDims / 8], const FragmentC (&weights)[PrefillShape<kDims>::kKeys / 8],
    const T* tokens, int lane) {
  using Shape = PrefillShape<kDims>;
#pragma unroll
  for (int j = 0; j < Shape::kKeys / 16; ++j) {
    const FragmentC &low = weights[2 * j], &high = weights[2 * j + 1];
    const FragmentA a = {{pack<T>(low.r[0], low.r[1]), pack<T>(low.r[2], low.r[3]),
                          pack<T>(high.r[0], high.r[1]), pack<T>(high.r[2], high.r[3])}};
#pragma unroll
    for (int d = 0; d < kDims; d += 16) {
      const int token = j * 16 + lane % 8 + lane / 8 % 2 * 8;
      const FragmentA two =
          load_matrices<true>(tokens + token * Shape::kStride + d + lane / 16 * 8);
      multiply_add<T>(values[d / 8], a, {{two.r[0], two.r[1]}});
      multiply_add<T>(values[d / 8 + 1], a, {{two.r[2], two.r[3]}});
    }
  }
}

// What a lane's two rows (g and g + 8 of its warp) see, and their softmax.
struct PrefillRows {
  int row_begin[2], row_end[2];
  RowState states[2];

  // Scores become weights, relative to the rows' new maxima; `values` follow. `is_whole`: every row
  // of the warp sees the whole tile.
  template <int kScores, int kValues>
  __device__ __forceinline__ void take_softmax(const Scores& to_score, int first_position,
                                               bool is_whole, FragmentC (&scores)[kScores],
                                               FragmentC (&values)[kValues]) {
    float maxima[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int position = first_position + 8 * j + i % 2, h = i / 2;
        float& x = scores[j].r[i];
        x = is_whole || (position >= row_begin[h] && position < row_end[h]) ? to_score(x)
                                                                            : -INFINITY;
        maxima[h] = fmaxf(maxima[h], x);
      }
    }
    float factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) factors[h] = states[h].raise(max_lanes<4>(maxima[h]));
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = scores[j].r[i];
        x = exp2_fast(x - RowState::base(states[i / 2].maximum));
        states[i / 2].sum += x;
      }
    }
#pragma unroll
    for (int j = 0; j < kValues; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) values[j].r[i] *= factors[i / 2];
    }
  }
};

// Tiles of all requests are numbered through: those of request s begin at this one. There are at
// least as many numbers as tiles.
__device__ __forceinline__ int first_tile(const AttentionTask& task, int request, int group_size) {
  return task.query_start_loc[request] * group_size / kPrefillRows + request;
}

template <class Cache, class T, int kDims>
__global__ void __launch_bounds__(kPrefillThreads, kDims <= 128 ? 2 : 1)
    attend_prefill_kernel(const AttentionTask task) {
  using Shape = PrefillShape<kDims>;
  constexpr int kKeys = Shape::kKeys, kStride = Shape::kStride;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  // The last tiles of a prompt see the most: they go first.
  const int tile = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int group_size = static_cast<int>(task.num_heads / task.cache.num_kv_heads);
  int request = 0, beyond = static_cast<int>(task.num_requests);
  while (beyond - request > 1) {
    const int middle = (request + beyond) / 2;
    (first_tile(task, middle, group_size) <= tile ? request : beyond) = middle;
  }
  const RequestRows rows(task, request);
  const int first_row = (tile - first_tile(task, request, group_size)) * kPrefillRows;
  if (first_row >= rows.num_rows) return;
  const int left = rows.num_rows - first_row;
  const int num_rows = left < kPrefillRows ? left : kPrefillRows;
  const int low = rows.begin(first_row, task.sliding_window);
  const int high = rows.end(first_row + num_rows - 1);

  T* q = reinterpret_cast<T*>(shared_memory());  // [kPrefillRows, kStride]
  T* keys = q + kPrefillRows * kStride;          // [kKeys, kStride]
  T* tokens = keys + kKeys * kStride;            // [kKeys, kStride]
  int64_t* offsets = reinterpret_cast<int64_t*>(tokens + kKeys * kStride);  // [2, kKeys]
  const auto tile_at = [&](int first) {
    return PrefillTile{first, low, high, offsets + first / kKeys % 2 * kKeys,
                       static_cast<int>(padded_head_dim(task.cache.head_dim))};
  };
  const auto find_offsets = [&](int first) {
    const int key = static_cast<int>(threadIdx.x), position = first + key;
    if (key >= kKeys || position < low || position >= high) return;
    offsets[first / kKeys % 2 * kKeys + key] = cache_offset(task, request, kv_head, position);
  };

  for (int i = static_cast<int>(threadIdx.x); i < kPrefillRows * (kDims / 8);
       i += kPrefillThreads) {
    const int row = i / (kDims / 8), dim = i % (kDims / 8) * 8;
    const bool is_row = row < num_rows;
    const Eight<T> eight =
        load_q<T>(task, rows.offset(task, kv_head, first_row + (is_row ? row : 0)), dim, is_row);
    *reinterpret_cast<uint4*>(q + row * kStride + dim) = {eight.pairs[0], eight.pairs[1],
                                                          eight.pairs[2], eight.pairs[3]};
  }
  const int first_key = low / kKeys * kKeys;
  find_offsets(first_key);
  __syncthreads();
  load_tile<Cache, T, kDims>(task.cache.k, tile_at(first_key), keys);
  commit_copies();

  // Of the warp's rows; those beyond the last one see what that one sees, and are dropped.
  const auto clamped = [&](int row) { return first_row + (row < num_rows ? row : num_rows - 1); };
  const int warp_low = rows.begin(clamped(warp * 16), task.sliding_window);
  const int warp_high = rows.end(clamped(warp * 16 + 15));
  const int all_begin = rows.begin(clamped(warp * 16 + 15), task.sliding_window);
  const int all_end = rows.end(clamped(warp * 16));
  const Scores to_score(task);
  PrefillRows seen;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = clamped(warp * 16 + 8 * h + g);
    seen.row_begin[h] = rows.begin(row, task.sliding_window);
    seen.row_end[h] = rows.end(row);
  }
  FragmentC values[kDims / 8] = {};
  for (int first = first_key; first < high; first += kKeys) {
    find_offsets(first + kKeys);
    wait_copies<0>();
    __syncthreads();  // K is here, V has been used
    load_tile<Cache, T, kDims>(task.cache.v, tile_at(first), tokens);
    commit_copies();
    const bool is_seen = first < warp_high && first + kKeys > warp_low;
    FragmentC scores[kKeys / 8] = {};
    if (is_seen) multiply_tile_keys<T, kDims>(scores, q + warp * 16 * kStride, keys, lane);
    __syncthreads();  // K has been used
    if (first + kKeys < high) {
      load_tile<Cache, T, kDims>(task.cache.k, tile_at(first + kKeys), keys);
    }
    commit_copies();
    if (is_seen) {
      const bool is_whole = first >= all_begin && first + kKeys <= all_end;
      seen.take_softmax(to_score, first + 2 * t, is_whole, scores, values);
    }
    wait_copies<1>();
    __syncthreads();  // V is here
    if (is_seen) multiply_tile_values<T, kDims>(values, scores, tokens, lane);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = sum_lanes<4>(seen.states[h].sum);
    const int row = warp * 16 + 8 * h + g;
    if (row >= num_rows) continue;
    const int64_t offset = rows.offset(task, kv_head, first_row + row);
#pragma unroll
    for (int i = 0; i < kDims / 8; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int dim = 8 * i + 2 * t + c;
        const float x = sum == 0 ? 0.0f : values[i].r[2 * h + c] / sum * task.cache.v_scale;
        if (dim < task.cache.head_dim) store_float(task.out, offset + dim, task.dtype, x);
      }
    }
  }
}

template <class Cache, class T>
int32_t launch_prefill(const AttentionTask& task, Stream stream) {
  const int64_t rows = task.num_tokens * (task.num_heads / task.cache.num_kv_heads);
  const dim3 grid(static_cast<unsigned>(rows / kPrefillRows + task.num_requests),
                  static_cast<unsigned>(task.cache.num_kv_heads));
  const auto start = [&](auto* kernel, size_t bytes) {
    return launch("attend_prefill", kernel, grid, kPrefillThreads, bytes, stream, task);
  };
  const auto with_dims = [&]<int kDims>(std::integral_constant<int, kDims>) {
    return start(&attend_prefill_kernel<Cache, T, kDims>, PrefillShape<kDims>::kBytes);
  };
  const int64_t head_dim = task.cache.head_dim;
  if (head_dim <= 64) return with_dims(std::integral_constant<int, 64>());
  if (head_dim <= 96) return with_dims(std::integral_constant<int, 96>());
  if (head_dim <= 128) return with_dims(std::integral_constant<int, 128>());
  if (head_dim <= 192) return with_dims(std::integral_constant<int, 192>());
  return with_dims(std::integral_constant<int, 256>());
}

}  // namespace pinfer::cuda
