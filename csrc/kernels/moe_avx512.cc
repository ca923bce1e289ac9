#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/vector_math/vector_functions.h"
// And these over the functions above.
#include "csrc/kernels/moe_kernel.h"

namespace pinfer {

const MoeKernel kMoeAvx512 = kMoe;

}  // namespace pinfer
