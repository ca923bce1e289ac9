// Few rows times weights of bfloat16 and float16.
#include "csrc/kernels/few_rows_kernel_cuda.h"

namespace pinfer::cuda {

int32_t multiply_few_rows_bfloat16(const FewRowsArguments& a, int32_t x_dtype, Stream stream) {
  if (x_dtype == PINFER_FLOAT32) return launch_few_rows<FloatWeight<BFloat16>, float>(a, stream);
  return launch_few_rows<FloatWeight<BFloat16>, BFloat16>(a, stream);
}

int32_t multiply_few_rows_float16(const FewRowsArguments& a, int32_t x_dtype, Stream stream) {
  if (x_dtype == PINFER_FLOAT32) return launch_few_rows<FloatWeight<Float16>, float>(a, stream);
  return launch_few_rows<FloatWeight<Float16>, Float16>(a, stream);
}

}  // namespace pinfer::cuda
