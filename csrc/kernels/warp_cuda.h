// Instructions of a whole warp, each with a twin for the emulation: tensor cores, matrices from
// shared memory, asynchronous copies, reductions. For sm_80 and newer.
//
// The fragments of an m16n8k16 product, by the PTX manual. A lane is 4 * g + t, g = 0 ... 7,
// t = 0 ... 3; a register holds two numbers side by side:
//   A [16, 16]  a[0] row g, columns 2t, 2t + 1;  a[1] row g + 8;  a[2], a[3] columns + 8
//   B [16, 8]   b[0] column g, rows 2t, 2t + 1;  b[1] rows + 8
//   C [16, 8]   c[0], c[1] row g, columns 2t, 2t + 1;  c[2], c[3] row g + 8
#pragma once

#include <cmath>

#include "csrc/kernels/number_cuda.h"

namespace pinfer::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

struct FragmentA {
  uint32_t r[4];
};
struct FragmentB {
  uint32_t r[2];
};
struct FragmentC {
  float r[4];
};

#ifndef __CUDACC__
namespace emulation {

struct MatrixLoad {
  const unsigned char* row;
  uint32_t r[4];
  bool transposed;
  static void run(void* const* lanes, unsigned) {
    for (int lane = 0; lane < 32; ++lane) {
      MatrixLoad& mine = *static_cast<MatrixLoad*>(lanes[lane]);
      for (int m = 0; m < 4; ++m) {
        const auto number = [&](int row, int column) {
          uint16_t bits;
          const auto* rows = static_cast<const MatrixLoad*>(lanes[m * 8 + row])->row;
          std::memcpy(&bits, rows + column * 2, 2);
          return uint32_t{bits};
        };
        const int g = lane / 4, t = lane % 4;
        mine.r[m] = mine.transposed ? number(2 * t, g) | number(2 * t + 1, g) << 16
                                    : number(g, 2 * t) | number(g, 2 * t + 1) << 16;
      }
    }
  }
};

template <class T>
struct Product {
  FragmentC* c;
  FragmentA a;
  FragmentB b;
  static float number(uint32_t pair, int half) {
    return to_float(bit_cast<T>(static_cast<uint16_t>(half ? pair >> 16 : pair)));
  }
  static void run(void* const* lanes, unsigned) {
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const Product& from = *static_cast<const Product*>(lanes[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 4; ++i) {
          a[g + i % 2 * 8][2 * t + half + i / 2 * 8] = number(from.a.r[i], half);
        }
        for (int i = 0; i < 2; ++i) b[2 * t + half + i * 8][g] = number(from.b.r[i], half);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      FragmentC& c = *static_cast<const Product*>(lanes[lane])->c;
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        float sum = 0;
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
        c.r[i] += sum;
      }
    }
  }
};

}  // namespace emulation
#endif

// Four 8x8 matrices of 16-bit numbers from shared memory: lane l names row l % 8 of matrix l / 8
// (16 bytes, aligned), and gets of each matrix row l / 4, columns 2 * (l % 4) and the next;
// transposed: column l / 4, rows 2 * (l % 4) and the next.
template <bool kTransposed>
__device__ __forceinline__ FragmentA load_matrices(const void* row) {
  FragmentA f;
#ifdef __CUDACC__
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
                 : "r"(address)
                 : "memory");
  }
#else
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
    throw emulation::Fault("a matrix row that is not aligned");
  }
  emulation::MatrixLoad mine{static_cast<const unsigned char*>(row), {}, kTransposed};
  emulation::sync_warp(kAllLanes, &emulation::MatrixLoad::run, &mine);
  std::memcpy(f.r, mine.r, sizeof(f.r));
#endif
  return f;
}

// c += a * b, of T = BFloat16 or Float16 with float32 sums.
template <class T>
__device__ __forceinline__ void multiply_add(FragmentC& c, const FragmentA& a, const FragmentB& b) {
#ifdef __CUDACC__
  if constexpr (std::is_same_v<T, BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  }
#else
  emulation::Product<T> mine{&c, a, b};
  emulation::sync_warp(kAllLanes, &emulation::Product<T>::run, &mine);
#endif
}

// 16 bytes into shared memory, zeros where `is_valid` is false (`from` is not read then). They are
// there after wait_copies() and a barrier.
__device__ __forceinline__ void copy_16_bytes(void* to, const void* from, bool is_valid) {
#ifdef __CUDACC__
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
               "r"(is_valid ? 16 : 0)
               : "memory");
#else
  emulation::copy_later(to, from, is_valid ? 16 : 0, is_valid ? 0 : 16);
#endif
}
__device__ __forceinline__ void commit_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commit_copies();
#endif
}
// Until at most kPending of this thread's committed groups are on their way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  emulation::wait_copies(kPending);
#endif
}

// 2^x; tiny results may be 0.
__device__ __forceinline__ float exp2_fast(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// x / y, to two units in the last place; 0 where y is huge.
__device__ __forceinline__ float divide_fast(float x, float y) {
#ifdef __CUDACC__
  return __fdividef(x, y);
#else
  return x / y;
#endif
}

// Over `width` neighbouring lanes (a power of 2), the result in all of them.
template <int width>
__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
  for (int bits = width / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(kAllLanes, x, bits);
  return x;
}
template <int width>
__device__ __forceinline__ float max_lanes(float x) {
#pragma unroll
  for (int bits = width / 2; bits > 0; bits /= 2) {
    x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, bits));
  }
  return x;
}

}  // namespace pinfer::cuda
