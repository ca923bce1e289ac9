// The largest logit of each row, one thread block a row: 0.5 MB of a vocabulary of 128 k.
#include <cmath>

#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/warp_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr unsigned kThreads = 1024;

struct Best {
  float value;
  int32_t id;  // -1: no number yet, or a NaN
};

// NaN is the best of all; then the larger, then the lower id.
__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  if (a.value != a.value) return a;
  if (b.value != b.value) return b;
  if (a.value != b.value) return a.value > b.value ? a : b;
  return a.id >= 0 && (a.id < b.id || b.id < 0) ? a : b;
}

__device__ __forceinline__ Best best_of_warp(Best best) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) {
    const Best other = {__shfl_xor_sync(kAllLanes, best.value, bits),
                        __shfl_xor_sync(kAllLanes, best.id, bits)};
    best = better(best, other);
  }
  return best;
}

__global__ void __launch_bounds__(kThreads)
    argmax_kernel(const float* logits, int64_t vocab_size, int64_t row_stride, int32_t* ids) {
  const float* row = logits + blockIdx.x * row_stride;
  Best best = {-INFINITY, -1};
  for (int64_t i = threadIdx.x; i < vocab_size; i += kThreads) {
    best = better(best, {row[i], static_cast<int32_t>(i)});
  }
  best = best_of_warp(best);
  Best* of_warps = reinterpret_cast<Best*>(shared_memory());
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  best = best_of_warp(of_warps[threadIdx.x]);
  if (threadIdx.x == 0) {
    const bool is_good = best.value - best.value == 0;  // neither NaN nor infinite
    ids[blockIdx.x] = is_good ? best.id : -1;
  }
}

}  // namespace

int32_t argmax(const float* logits, int64_t num_rows, int64_t vocab_size, int64_t row_stride,
               int32_t* ids, Stream stream) {
  const char* op = "argmax";
  PINFER_OPS_CHECK(num_rows >= 0, "%s: num_rows must be at least 0, got %lld", op,
                   number(num_rows));
  PINFER_OPS_CHECK(vocab_size >= 1 && vocab_size <= INT32_MAX && row_stride >= vocab_size,
                   "%s: vocab_size must be at least 1 and at most row_stride, got %lld and %lld",
                   op, number(vocab_size), number(row_stride));
  if (num_rows == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(logits != nullptr && ids != nullptr, "%s: logits and ids must not be null", op);
  return launch(op, &argmax_kernel, dim3(static_cast<unsigned>(num_rows)), kThreads,
                sizeof(Best) * 32, stream, logits, vocab_size, row_stride, ids);
}

}  // namespace pinfer::cuda
