// Split attention over caches of bfloat16.
#include "csrc/kernels/attention_split_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_split_bfloat16(const SplitArguments& a, int64_t rows, Stream stream) {
  return launch_split<BFloat16, BFloat16>(a, rows, stream);
}

}  // namespace pinfer::cuda
