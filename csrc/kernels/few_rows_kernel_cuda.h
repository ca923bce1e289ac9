// A linear layer for up to 16 rows: out^T = weight * x^T on tensor cores, the weight in 16-byte
// loads straight from memory into fragments.
//
// The order of k within a product is free as long as weight and x agree on it, so a lane's 16 bytes
// of consecutive numbers are its part of several fragments: no shared memory, no shuffling. The
// warps of a block divide k among them and add up their sums at the end, in a fixed order.
#pragma once

#include <cmath>

#include "csrc/kernels/few_rows_cuda.h"
#include "csrc/kernels/warp_cuda.h"

namespace pinfer::cuda {

inline constexpr int kFewRowsWarps = 8;
inline constexpr int kFewRowsOutputs = 16;  // of a block

// Weights are read once: they need no place in the cache.
__device__ __forceinline__ uint4 load_once(const unsigned char* p) {
#ifdef __CUDACC__
  return __ldcs(reinterpret_cast<const uint4*>(p));
#else
  return *reinterpret_cast<const uint4*>(p);
#endif
}

// The formats: how much k a lane's 16 bytes hold, at which k their eights lie, and the eights.
template <class T>
struct FloatWeight {
  using Number = T;
  static constexpr int kStep = 32, kEights = 1, kAhead = 4;
  static constexpr bool kGrouped = false;
  static __device__ __forceinline__ int k_of_eight(int t, int) { return 8 * t; }
  static __device__ __forceinline__ Eight<T> eight(const uint4& words, int) {
    return {{words.x, words.y, words.z, words.w}};
  }
};

template <class T>
struct Float8Weight {
  using Number = T;
  static constexpr int kStep = 64, kEights = 2, kAhead = 4;
  static constexpr bool kGrouped = false;
  static __device__ __forceinline__ int k_of_eight(int t, int e) { return 16 * t + 8 * e; }
  static __device__ __forceinline__ Eight<T> eight(const uint4& words, int e) {
    const uint32_t low = e == 0 ? words.x : words.z, high = e == 0 ? words.y : words.w;
    return {{pack_float8<T>(static_cast<uint16_t>(low)),
             pack_float8<T>(static_cast<uint16_t>(low >> 16)),
             pack_float8<T>(static_cast<uint16_t>(high)),
             pack_float8<T>(static_cast<uint16_t>(high >> 16))}};
  }
};

template <class T>
struct Int4Weight {
  using Number = T;
  static constexpr int kStep = 128, kEights = 4, kAhead = 2;
  static constexpr bool kGrouped = true;
  static __device__ __forceinline__ int k_of_eight(int t, int e) { return 32 * e + 8 * t; }
  static __device__ __forceinline__ Eight<T> eight(const uint4& words, int e) {
    const uint32_t word = e == 0 ? words.x : e == 1 ? words.y : e == 2 ? words.z : words.w;
    // A nibble in the lowest bits of 128 (bfloat16) or 1024 (float16) adds itself.
    constexpr uint32_t kBase = std::is_same_v<T, BFloat16> ? 0x43004300u : 0x64006400u;
    using Pair = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162, __half2>;
    Eight<T> eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t biased = (word >> (4 * i) & 0x000f000fu) | kBase;
      eight.pairs[i] =
          bit_cast<uint32_t>(__hsub2(bit_cast<Pair>(biased), bit_cast<Pair>(uint32_t{kBase})));
    }
    return eight;
  }
};

// Eight numbers of a row of x from k; zeros beyond the rows and beyond k.
template <class T, class X>
__device__ __forceinline__ Eight<T> load_x(const FewRowsArguments& a, int row, int k) {
  Eight<T> eight = {};
  const int in_features = static_cast<int>(a.weight.in_features);
  if (row >= a.num_tokens || k >= in_features) return eight;
  const X* p = static_cast<const X*>(a.x) + int64_t{row} * in_features + k;
  if (a.is_x_aligned) return load_eight<T>(p);
  const int count = in_features - k;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float first = 2 * i < count ? to_float(p[2 * i]) : 0.0f;
    const float second = 2 * i + 1 < count ? to_float(p[2 * i + 1]) : 0.0f;
    eight.pairs[i] = pack<T>(first, second);
  }
  return eight;
}

// sums += weight eight * x eight: two products of 16 k. The lanes' rows g and g + 8 of the weight.
template <class T>
__device__ __forceinline__ void multiply_eight(FragmentC& sums, const Eight<T>& row,
                                               const Eight<T>& row_8, const Eight<T>& x) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const FragmentA a = {{row.pairs[i], row_8.pairs[i], row.pairs[i + 1], row_8.pairs[i + 1]}};
    multiply_add<T>(sums, a, {{x.pairs[i], x.pairs[i + 1]}});
  }
}

// The same for 32 numbers of k that share a scale and a minimum in each row: products of integers
// are exact in float32, so scales come afterwards. Minima are multiplied by the sums of x, which
// another product gives where they are needed.
template <class T>
__device__ __forceinline__ void multiply_group(FragmentC& sums, const Eight<T>& row,
                                               const Eight<T>& row_8, const Eight<T>& x,
                                               const float (&scales)[2], const float (&minima)[2]) {
  FragmentC products = {}, x_sums = {};
  multiply_eight(products, row, row_8, x);
  const uint32_t one = pack<T>(1.0f, 1.0f);
  const Eight<T> ones = {{one, one, one, one}};
  multiply_eight(x_sums, ones, ones, x);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums.r[i] = fmaf(scales[i / 2], products.r[i], sums.r[i]);
    sums.r[i] = fmaf(minima[i / 2], x_sums.r[i], sums.r[i]);
  }
}

template <class Format, class X, int kRowTiles>
__global__ void __launch_bounds__(kFewRowsWarps * 32)
    multiply_few_rows_kernel(const FewRowsArguments a) {
  using T = typename Format::Number;
  constexpr int kRows = 8 * kRowTiles;
  const Weight& weight = a.weight;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, t = lane % 4;
  const int64_t first_output = int64_t{blockIdx.x} * kFewRowsOutputs;
  const int num_steps = (static_cast<int>(weight.in_features) + Format::kStep - 1) / Format::kStep;
  const int num_groups = ((num_steps * Format::kStep - 1) >> a.log_group_size) + 1;

  // Rows beyond the last output are read from there, and dropped.
  int64_t outputs[2];
  const unsigned char* rows[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t output = first_output + h * 8 + g;
    outputs[h] = output < weight.out_features ? output : weight.out_features - 1;
    rows[h] = static_cast<const unsigned char*>(weight.data) +
              outputs[h] * (int64_t{num_steps} * 64) + t * 16;
  }

  FragmentC sums[kRowTiles] = {};
  for (int begin = warp; begin < num_steps; begin += kFewRowsWarps * Format::kAhead) {
    uint4 words[Format::kAhead][2];
#pragma unroll
    for (int s = 0; s < Format::kAhead; ++s) {
      const int step = begin + s * kFewRowsWarps;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        words[s][h] = step < num_steps ? load_once(rows[h] + int64_t{step} * 64) : uint4{};
      }
    }
#pragma unroll
    for (int s = 0; s < Format::kAhead; ++s) {
      const int step = begin + s * kFewRowsWarps;
      if (step >= num_steps) break;  // the same for the whole warp
#pragma unroll
      for (int e = 0; e < Format::kEights; ++e) {
        const Eight<T> row = Format::eight(words[s][0], e);
        const Eight<T> row_8 = Format::eight(words[s][1], e);
        Eight<T> x[kRowTiles];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
          x[r] = load_x<T, X>(a, r * 8 + g, step * Format::kStep + Format::k_of_eight(t, e));
        }
        if constexpr (Format::kGrouped) {
          const int group = (step * Format::kStep + 32 * e) >> a.log_group_size;
          float scales[2], minima[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int64_t at = outputs[h] * num_groups + group;
            scales[h] = to_float(static_cast<const Float16*>(weight.scales)[at]);
            minima[h] = to_float(static_cast<const Float16*>(weight.minima)[at]);
          }
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) {
            multiply_group(sums[r], row, row_8, x[r], scales, minima);
          }
        } else {
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) multiply_eight(sums[r], row, row_8, x[r]);
        }
      }
    }
  }

  float* partial = reinterpret_cast<float*>(shared_memory());  // [warps, kRows, kFewRowsOutputs]
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int row = r * 8 + 2 * t + c % 2, output = c / 2 * 8 + g;
      partial[(warp * kRows + row) * kFewRowsOutputs + output] = sums[r].r[c];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kFewRowsOutputs;
       i += kFewRowsWarps * 32) {
    const int row = i / kFewRowsOutputs;
    const int64_t output = first_output + i % kFewRowsOutputs;
    if (row >= a.num_tokens || output >= weight.out_features) continue;
    float sum = partial[i];
    for (int w = 1; w < kFewRowsWarps; ++w) sum += partial[w * kRows * kFewRowsOutputs + i];
    if (weight.dtype == PINFER_FLOAT8_E4M3) sum *= static_cast<const float*>(weight.scales)[output];
    store_float(a.out, row * weight.out_features + output, a.out_dtype, sum);
  }
}

template <class Format, class X>
int32_t launch_few_rows(const FewRowsArguments& a, Stream stream) {
  const int64_t num_blocks = (a.weight.out_features + kFewRowsOutputs - 1) / kFewRowsOutputs;
  const auto start = [&](auto* kernel, int rows) {
    const size_t shared_bytes =
        sizeof(float) * kFewRowsWarps * kFewRowsOutputs * static_cast<size_t>(rows);
    return launch("multiply_few_rows", kernel, dim3(static_cast<unsigned>(num_blocks)),
                  kFewRowsWarps * 32, shared_bytes, stream, a);
  };
  return a.num_tokens <= 8 ? start(&multiply_few_rows_kernel<Format, X, 1>, 8)
                           : start(&multiply_few_rows_kernel<Format, X, 2>, 16);
}

}  // namespace pinfer::cuda
