#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/kernels/linear_kernel.h"

namespace pinfer {

const LinearKernel kLinearFloat32Avx512 = kLinearFloat32;
const LinearKernel kLinearBFloat16Avx512 = kLinearBFloat16;

}  // namespace pinfer
