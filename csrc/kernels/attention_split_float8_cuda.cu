// Split attention over caches of float8: numbers become those of q's dtype, exactly.
#include "csrc/kernels/attention_split_kernel_cuda.h"

namespace pinfer::cuda {

int32_t attend_split_float8(const SplitArguments& a, int64_t rows, Stream stream) {
  if (a.task.dtype == PINFER_FLOAT16) return launch_split<Float8, Float16>(a, rows, stream);
  return launch_split<Float8, BFloat16>(a, rows, stream);
}

}  // namespace pinfer::cuda
