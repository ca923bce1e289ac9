// Few rows times weights of int4.
#include "csrc/kernels/few_rows_kernel_cuda.h"

namespace pinfer::cuda {

int32_t multiply_few_rows_int4(const FewRowsArguments& a, int32_t x_dtype, Stream stream) {
  if (x_dtype == PINFER_FLOAT32) return launch_few_rows<Int4Weight<BFloat16>, float>(a, stream);
  if (x_dtype == PINFER_BFLOAT16) return launch_few_rows<Int4Weight<BFloat16>, BFloat16>(a, stream);
  return launch_few_rows<Int4Weight<Float16>, Float16>(a, stream);
}

}  // namespace pinfer::cuda
