// Sums of embeddings, scaled.
#include <algorithm>

#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/platform_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 20;

__global__ void __launch_bounds__(kThreads)
    add_scaled_kernel(float* x, const float* y, int64_t count, float scale) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    x[i] = (x[i] + (y != nullptr ? y[i] : 0.0f)) * scale;
  }
}

}  // namespace

int32_t add_scaled(float* x, const float* y, int64_t count, float scale, Stream stream) {
  const char* op = "add_scaled";
  PINFER_OPS_CHECK(count >= 0, "%s: count must be at least 0, got %lld", op, number(count));
  if (count == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(x != nullptr, "%s: x must not be null", op);
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  return launch(op, &add_scaled_kernel, dim3(static_cast<unsigned>(blocks)), kThreads, 0, stream, x,
                y, count, scale);
}

}  // namespace pinfer::cuda
