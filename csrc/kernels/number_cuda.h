// Numbers of the CUDA kernels: conversions, and 16-bit numbers in pairs as tensor cores take them.
#pragma once

#include "csrc/kernels/platform_cuda.h"

namespace pinfer::cuda {

using BFloat16 = __nv_bfloat16;
using Float16 = __half;
using Float8 = __nv_fp8_e4m3;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(BFloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(Float16 x) { return __half2float(x); }
__device__ __forceinline__ float to_float(Float8 x) { return static_cast<float>(x); }

// To nearest even; Float8: the largest number instead of infinity, NaN stays NaN.
template <class T>
__device__ __forceinline__ T from_float(float x) {
  return T(x);
}

// An element of a tensor whose dtype is known only at run time.
__device__ __forceinline__ float load_float(const void* p, int64_t i, int32_t dtype) {
  if (dtype == PINFER_FLOAT32) return static_cast<const float*>(p)[i];
  if (dtype == PINFER_BFLOAT16) return to_float(static_cast<const BFloat16*>(p)[i]);
  return to_float(static_cast<const Float16*>(p)[i]);
}
__device__ __forceinline__ void store_float(void* p, int64_t i, int32_t dtype, float x) {
  if (dtype == PINFER_FLOAT32) {
    static_cast<float*>(p)[i] = x;
  } else if (dtype == PINFER_BFLOAT16) {
    static_cast<BFloat16*>(p)[i] = from_float<BFloat16>(x);
  } else {
    static_cast<Float16*>(p)[i] = from_float<Float16>(x);
  }
}

template <class To, class From>
__device__ __forceinline__ To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(static_cast<void*>(&to), &from, sizeof(to));
  return to;
}

// N elements that are loaded and stored at once.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];
};

// Two numbers in a register: the first in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float first, float second);
template <>
__device__ __forceinline__ uint32_t pack<BFloat16>(float first, float second) {
  return bit_cast<uint32_t>(__floats2bfloat162_rn(first, second));
}
template <>
__device__ __forceinline__ uint32_t pack<Float16>(float first, float second) {
  return bit_cast<uint32_t>(__floats2half2_rn(first, second));
}

// Registers of the lower and of the upper halves of two.
__device__ __forceinline__ uint32_t lower_halves(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, 0x5410);
#else
  return (a & 0xffffu) | b << 16;
#endif
}
__device__ __forceinline__ uint32_t upper_halves(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  return __byte_perm(a, b, 0x7632);
#else
  return a >> 16 | (b & 0xffff0000u);
#endif
}

// Two float8 numbers (the first in the lower byte) as a pair of 16-bit numbers, exactly.
template <class T>
__device__ __forceinline__ uint32_t pack_float8(uint16_t two);
template <>
__device__ __forceinline__ uint32_t pack_float8<Float16>(uint16_t two) {
  return bit_cast<uint32_t>(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3));
}
template <>
__device__ __forceinline__ uint32_t pack_float8<BFloat16>(uint16_t two) {
  const float2 floats = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3)));
  return pack<BFloat16>(floats.x, floats.y);
}

// Eight numbers in a row as four pairs of T.
template <class T>
struct Eight {
  uint32_t pairs[4];
};

template <class T>
__device__ __forceinline__ Eight<T> load_eight(const T* p) {
  const uint4 words = *reinterpret_cast<const uint4*>(p);
  return {{words.x, words.y, words.z, words.w}};
}

template <class T>
__device__ __forceinline__ Eight<T> load_eight(const Float8* p) {
  const uint2 words = *reinterpret_cast<const uint2*>(p);
  return {{pack_float8<T>(static_cast<uint16_t>(words.x)),
           pack_float8<T>(static_cast<uint16_t>(words.x >> 16)),
           pack_float8<T>(static_cast<uint16_t>(words.y)),
           pack_float8<T>(static_cast<uint16_t>(words.y >> 16))}};
}

template <class T>
__device__ __forceinline__ Eight<T> load_eight(const float* p) {
  const float4 low = reinterpret_cast<const float4*>(p)[0];
  const float4 high = reinterpret_cast<const float4*>(p)[1];
  return {{pack<T>(low.x, low.y), pack<T>(low.z, low.w), pack<T>(high.x, high.y),
           pack<T>(high.z, high.w)}};
}

}  // namespace pinfer::cuda
