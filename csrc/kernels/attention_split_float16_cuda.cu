// Split attention over caches of float16.
#include "csrc/kernels/attention_split_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_split_float16(const SplitArguments& a, int64_t rows, Stream stream) {
  return launch_split<Float16, Float16>(a, rows, stream);
}

}  // namespace pinfer::cuda
