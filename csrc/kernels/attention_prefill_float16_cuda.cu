// Prefill attention over caches of float16.
#include "csrc/kernels/attention_prefill_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_prefill_float16(const AttentionTask& task, Stream stream) {
  return launch_prefill<Float16, Float16>(task, stream);
}

}  // namespace pinfer::cuda
