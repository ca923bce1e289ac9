// The emulation itself: what it computes, and that it finds broken kernels.
#include "cuda_emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/kernels/warp_cuda.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

constexpr unsigned kSeeds = 9;

// The reason of the fault that a launch ends with; "" if it ends well.
template <class Kernel>
std::string fault_of(unsigned threads, size_t shared_bytes, const Kernel& kernel) {
  try {
    emulation::run_grid(dim3(1), threads, shared_bytes, kernel);
  } catch (const emulation::Fault& fault) {
    return fault.what();
  }
  return "";
}

TEST(CudaEmulation, BarriersOrderTheThreads) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    emulation::set_seed(seed);
    std::vector<int> out(256);
    emulation::run_grid(dim3(2), 128, 128 * sizeof(int), [&] {
      int* shared = reinterpret_cast<int*>(shared_memory());
      shared[threadIdx.x] = static_cast<int>(threadIdx.x + 1000 * blockIdx.x);
      __syncthreads();
      out[blockIdx.x * 128 + threadIdx.x] = shared[127 - threadIdx.x];
    });
    for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], i / 128 * 1000 + 127 - i % 128);
  }
}

TEST(CudaEmulation, WarpOperations) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    emulation::set_seed(seed);
    std::vector<float> sums(64);
    std::vector<unsigned> ballots(64), shifted(64), half(64);
    emulation::run_grid(dim3(1), 64, 0, [&] {
      const unsigned i = threadIdx.x;
      sums[i] = sum_lanes<32>(static_cast<float>(i));
      ballots[i] = __ballot_sync(kAllLanes, i % 3 == 0);
      shifted[i] = __shfl_down_sync(kAllLanes, i, 4);
      // Half of a warp on its own.
      if (i % 32 < 16) half[i] = __shfl_sync(0xffffu, i, 3);
      __syncwarp();
    });
    for (unsigned i = 0; i < 64; ++i) {
      EXPECT_EQ(sums[i], i < 32 ? 496 : 1520);
      EXPECT_EQ(ballots[i], i < 32 ? 0x49249249u : 0x92492492u);
      EXPECT_EQ(shifted[i], i % 32 < 28 ? i + 4 : i);
      EXPECT_EQ(half[i], i % 32 < 16 ? i / 32 * 32 + 3 : 0);
    }
  }
}

// [16, 32] times the transpose of [8, 32], through shared memory, ldmatrix and mma.
template <class T>
void check_product() {
  const auto dtype = std::is_same_v<T, BFloat16> ? PINFER_BFLOAT16 : PINFER_FLOAT16;
  const DeviceTensor a(random_numbers(16 * 32, 1), dtype), b(random_numbers(16 * 32, 2), dtype);
  std::vector<float> straight(16 * 16), transposed(16 * 16);
  emulation::run_grid(dim3(1), 32, 2 * 16 * 40 * sizeof(T), [&] {
    T* rows = reinterpret_cast<T*>(shared_memory());  // [16, 40] twice
    T* columns = rows + 16 * 40;
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 16 * 32; i += 32) {
      rows[i / 32 * 40 + i % 32] = static_cast<const T*>(a.data())[i];
      columns[i / 32 * 40 + i % 32] = static_cast<const T*>(b.data())[i];
    }
    __syncwarp();
    FragmentC low = {}, high = {}, by_row[2] = {};
    for (int k = 0; k < 32; k += 16) {
      const FragmentA f = load_matrices<false>(rows + lane % 16 * 40 + k + lane / 16 * 8);
      const FragmentA g =
          load_matrices<false>(columns + (lane % 8 + lane / 16 * 8) * 40 + k + lane / 8 % 2 * 8);
      multiply_add<T>(low, f, {{g.r[0], g.r[1]}});
      multiply_add<T>(high, f, {{g.r[2], g.r[3]}});
    }
    // rows [16, 16] times columns [16, 16], not transposed.
    const FragmentA f = load_matrices<false>(rows + lane % 16 * 40 + lane / 16 * 8);
    const FragmentA g =
        load_matrices<true>(columns + (lane % 8 + lane / 8 % 2 * 8) * 40 + lane / 16 * 8);
    multiply_add<T>(by_row[0], f, {{g.r[0], g.r[1]}});
    multiply_add<T>(by_row[1], f, {{g.r[2], g.r[3]}});
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      straight[row * 16 + column] = low.r[i];
      straight[row * 16 + column + 8] = high.r[i];
      transposed[row * 16 + column] = by_row[0].r[i];
      transposed[row * 16 + column + 8] = by_row[1].r[i];
    }
  });
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column) {
      double sum = 0, other = 0;
      for (int k = 0; k < 32; ++k) sum += double{a[row * 32 + k]} * b[column * 32 + k];
      for (int k = 0; k < 16; ++k) other += double{a[row * 32 + k]} * b[k * 32 + column];
      EXPECT_NEAR(straight[row * 16 + column], sum, 1e-4);
      EXPECT_NEAR(transposed[row * 16 + column], other, 1e-4);
    }
  }
}

TEST(CudaEmulation, TensorCores) {
  check_product<BFloat16>();
  check_product<Float16>();
}

// Every nibble pattern and every float8 number survives unpacking.
TEST(CudaEmulation, Float8Pairs) {
  for (int bits = 0; bits < 256; ++bits) {
    Float8 number;
    number.__x = static_cast<unsigned char>(bits);
    const float expected = to_float(number);
    const auto two = static_cast<uint16_t>(bits | (255 - bits) << 8);
    const auto lower = [](uint32_t pair) { return static_cast<uint16_t>(pair); };
    const float half = to_float(bit_cast<Float16>(lower(pack_float8<Float16>(two))));
    const float brain = to_float(bit_cast<BFloat16>(lower(pack_float8<BFloat16>(two))));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(half) && std::isnan(brain));
    } else {
      EXPECT_EQ(half, expected);
      EXPECT_EQ(brain, expected);
    }
  }
}

TEST(CudaEmulation, FindsAnEarlyReturn) {
  const std::string fault = fault_of(64, 0, [] {
    if (threadIdx.x >= 60) return;
    __syncthreads();
  });
  EXPECT_EQ(fault,
            "threads returned before a barrier: 60 of 64 threads at __syncthreads(), 4 returned "
            "(block 0, 0, 0)");
}

TEST(CudaEmulation, FindsADivergentBarrier) {
  const std::string fault = fault_of(64, 0, [] {
    if (threadIdx.x < 40) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  });
  EXPECT_NE(fault.find("deadlock"), std::string::npos) << fault;
}

TEST(CudaEmulation, FindsLanesThatDoNotCome) {
  EXPECT_NE(fault_of(32, 0,
                     [] {
                       if (threadIdx.x != 5) __syncwarp();
                     })
                .find("deadlock"),
            std::string::npos);
  EXPECT_NE(fault_of(32, 0,
                     [] {
                       if (threadIdx.x < 16) {
                         __shfl_sync(kAllLanes, 1, 0);
                       } else {
                         __ballot_sync(kAllLanes, 1);
                       }
                     })
                .find("lanes of a warp at different operations"),
            std::string::npos);
  EXPECT_NE(fault_of(32, 0, [] { __shfl_sync(threadIdx.x < 16 ? 0xffffu : 0xffff0000u, 1, 20); })
                .find("shuffle from a lane that the mask does not name"),
            std::string::npos);
  EXPECT_NE(fault_of(16, 0, [] { __syncwarp(); }).find("beyond the block"), std::string::npos);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(CudaEmulation, FindsAWriteBeyondSharedMemory) {
  const std::string fault = fault_of(32, 32 * sizeof(float), [] {
    reinterpret_cast<float*>(shared_memory())[threadIdx.x + 1] = 1;
  });
  EXPECT_EQ(fault, "a write beyond the 128 bytes of shared memory (block 0, 0, 0)");
}
#else
TEST(CudaEmulationDeathTest, FindsAWriteBeyondSharedMemory) {
  EXPECT_DEATH(
      emulation::run_grid(dim3(1), 32, 32 * sizeof(float),
                          [] { reinterpret_cast<float*>(shared_memory())[threadIdx.x + 1] = 1; }),
      "heap-buffer-overflow");
}
#endif

TEST(CudaEmulation, SharedMemoryBeginsAsNaN) {
  float seen = 0;
  emulation::run_grid(dim3(1), 1, 4, [&] { seen = reinterpret_cast<float*>(shared_memory())[0]; });
  EXPECT_TRUE(std::isnan(seen));
}

TEST(CudaEmulation, FindsAnUnwaitedCopy) {
  const DeviceTensor from(random_numbers(4 * 32, 1), PINFER_FLOAT32);
  const auto copied = [&](bool waits) {
    int wrong = 0;
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      emulation::set_seed(seed);
      emulation::run_grid(dim3(1), 32, 32 * 16, [&] {
        float* shared = reinterpret_cast<float*>(shared_memory());
        const unsigned i = threadIdx.x;
        copy_16_bytes(shared + 4 * i, static_cast<const float*>(from.data()) + 4 * i, i != 7);
        commit_copies();
        if (waits) wait_copies<0>();
        __syncthreads();
        const float expected = i == 24 ? 0.0f : from[4 * (31 - i)];
        if (!(shared[4 * (31 - i)] == expected)) ++wrong;
      });
    }
    return wrong;
  };
  EXPECT_EQ(copied(true), 0);
  EXPECT_GT(copied(false), 0);
}

TEST(CudaEmulation, AFaultLeavesTheNextLaunchAlone) {
  EXPECT_NE(fault_of(32, 0,
                     [] {
                       if (threadIdx.x == 0) __syncthreads();
                     }),
            "");
  int count = 0;
  emulation::run_grid(dim3(3), 32, 0, [&] {
    ++count;
    __syncthreads();
  });
  EXPECT_EQ(count, 96);
}

}  // namespace
}  // namespace pinfer::cuda
