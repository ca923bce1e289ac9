#include "csrc/kernels/simd_portable.h"
// The templates below are over the Simd above.
#include "csrc/kernels/linear_kernel.h"

namespace pinfer {

const LinearKernel kLinearFloat32Portable = kLinearFloat32;
const LinearKernel kLinearBFloat16Portable = kLinearBFloat16;

}  // namespace pinfer
