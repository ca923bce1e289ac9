// CUDA C++ on the CPU, for tests: csrc/kernels/*_cuda.cu compiled by a host compiler.
//
// Every thread of a block is a fiber with a stack of its own, so that __syncthreads() and the
// warp's operations really block. Which thread runs next is drawn from a seed. Blocks run one after
// the other; their shared memory begins as NaN.
//
// Found: a barrier that some threads do not reach or have returned before, lanes of a warp at
// different operations, lanes that a mask names but that never come, writes beyond shared memory
// (reads too, under AddressSanitizer), asynchronous copies that are read before they are waited
// for. Not modelled: the order in which memory becomes visible between blocks, bank conflicts,
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <type_traits>

// CUDA's headers give these to host compilers without a meaning.
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace pinfer::cuda::emulation {

// A kernel broke a rule; what() says which, and where.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Counts {
  int64_t launches = 0, blocks = 0, barriers = 0, warp_operations = 0;
};

// Of the launches that follow. seed % 3 is the policy: threads run in any order, the one that
// waited least first (a warp runs far ahead of the others), or in turn.
void set_seed(unsigned seed);
const Counts& counts();

// What is broken on purpose in the launches that follow, to see that it is found.
struct PlantedFault {
  int barrier = -1;          // this __syncthreads() of every thread (0: the first) does nothing
  int copy_wait = -1;        // this wait for asynchronous copies does nothing
  size_t missing_bytes = 0;  // of shared memory
};
void plant(const PlantedFault& fault);

// Runs `body` once for every thread of every block. Throws Fault.
void run_grid(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()>& body);

// Inside of a kernel:
unsigned char* shared_bytes();
void sync_block();

// One operation of a warp: as soon as all lanes of the mask have come with the same `run`, it is
// called once with their arguments (null for other lanes); then they go on.
using WarpRun = void (*)(void* const* lanes, unsigned mask);
void sync_warp(unsigned mask, WarpRun run, void* argument);

// Copies that happen at once or as late as when they are waited for.
void copy_later(void* to, const void* from, size_t bytes, size_t zero_bytes);
void commit_copies();
void wait_copies(int pending_groups);

inline unsigned lane() { return threadIdx.x % 32; }

template <class T>
struct Exchange {
  T value;
  int source;  // lane
  T result;
  static void run(void* const* lanes, unsigned mask) {
    for (int i = 0; i < 32; ++i) {
      if ((mask >> i & 1) == 0) continue;
      Exchange& mine = *static_cast<Exchange*>(lanes[i]);
      const void* theirs = lanes[mine.source & 31];
      // What a lane outside of the mask would give is undefined.
      if (theirs == nullptr) throw Fault("shuffle from a lane that the mask does not name");
      mine.result = static_cast<const Exchange*>(theirs)->value;
    }
  }
};

template <class T>
T exchange(unsigned mask, T value, int source) {
  Exchange<T> mine{value, source, value};
  sync_warp(mask, &Exchange<T>::run, &mine);
  return mine.result;
}

struct Ballot {
  bool predicate;
  unsigned result;
  static void run(void* const* lanes, unsigned mask) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i) {
      if (mask >> i & 1) bits |= unsigned{static_cast<Ballot*>(lanes[i])->predicate} << i;
    }
    for (int i = 0; i < 32; ++i) {
      if (mask >> i & 1) static_cast<Ballot*>(lanes[i])->result = bits;
    }
  }
};

}  // namespace pinfer::cuda::emulation

inline void __syncthreads() { pinfer::cuda::emulation::sync_block(); }
inline void __syncwarp(unsigned mask = ~0u) {
  pinfer::cuda::emulation::sync_warp(mask, [](void* const*, unsigned) {}, nullptr);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return pinfer::cuda::emulation::exchange(mask, value, source);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return pinfer::cuda::emulation::exchange(
      mask, value, static_cast<int>(pinfer::cuda::emulation::lane()) ^ bits);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta) {
  const int lane = static_cast<int>(pinfer::cuda::emulation::lane());
  return pinfer::cuda::emulation::exchange(mask, value, lane + delta < 32 ? lane + delta : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  pinfer::cuda::emulation::Ballot mine{predicate != 0, 0};
  pinfer::cuda::emulation::sync_warp(mask, &pinfer::cuda::emulation::Ballot::run, &mine);
  return mine.result;
}
