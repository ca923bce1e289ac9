// Prefill attention over caches of bfloat16.
#include "csrc/kernels/attention_prefill_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_prefill_bfloat16(const AttentionTask& task, Stream stream) {
  return launch_prefill<BFloat16, BFloat16>(task, stream);
}

}  // namespace pinfer::cuda
