#include "csrc/kernels/simd_avx2.h"
// The templates below are over the Simd above.
#include "csrc/kernels/linear_kernel.h"

namespace pinfer {

const LinearKernel kLinearFloat32Avx2 = kLinearFloat32;
const LinearKernel kLinearBFloat16Avx2 = kLinearBFloat16;

}  // namespace pinfer
