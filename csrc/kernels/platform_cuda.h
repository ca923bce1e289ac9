// What a kernel's source needs of its compiler. nvcc makes device code of it; any other compiler
// needs a header cuda_emulation.h, in which tests run the same source on the CPU
// (tests/ops/cuda).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "csrc/kernels/kernels_cuda.h"
#include "csrc/ops_error.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "cuda_emulation.h"
#endif

namespace pinfer::cuda {

// Shared memory of the block, as much as its launch asked for.
__device__ __forceinline__ unsigned char* shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) unsigned char pinfer_shared_memory[];
  return pinfer_shared_memory;
#else
  return emulation::shared_bytes();
#endif
}

// More than this has to be asked for.
inline constexpr size_t kPlainSharedBytes = 48 * 1024;

// Starts kernel(arguments...) with one-dimensional blocks.
template <class... P>
int32_t launch(const char* op, void (*kernel)(P...), dim3 grid, unsigned threads,
               size_t shared_bytes, [[maybe_unused]] Stream stream,
               std::type_identity_t<P>... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(grid.y <= 65535 && grid.z <= 65535, "%s: a grid of %u x %u x %u is too large",
                   op, grid.x, grid.y, grid.z);
#ifdef __CUDACC__
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) {
      return ops_error(PINFER_OPS_DEVICE_ERROR, "%s: %zu bytes of shared memory: %s", op,
                       shared_bytes, cudaGetErrorString(error));
    }
  }
  void* pointers[] = {static_cast<void*>(&arguments)...};
  const cudaError_t error =
      cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, dim3(threads), pointers,
                       shared_bytes, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    return ops_error(PINFER_OPS_DEVICE_ERROR, "%s: launch failed: %s", op,
                     cudaGetErrorString(error));
  }
#else
  emulation::run_grid(grid, threads, shared_bytes, [&] { kernel(arguments...); });
#endif
  return PINFER_OPS_OK;
}

}  // namespace pinfer::cuda
