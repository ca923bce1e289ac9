#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/kernels/linear_kernel.h"

namespace pinfer {

// float32 is the same as without bfloat16 instructions.
const LinearKernel kLinearBFloat16Avx512Bf16 = kLinearBFloat16;

}  // namespace pinfer
