// Prefill attention over caches of float8: numbers become those of q's dtype, exactly.
#include "csrc/kernels/attention_prefill_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_prefill_float8(const AttentionTask& task, Stream stream) {
  if (task.dtype == PINFER_FLOAT16) return launch_prefill<Float8, Float16>(task, stream);
  return launch_prefill<Float8, BFloat16>(task, stream);
}

}  // namespace pinfer::cuda
