#include "csrc/kernels/simd_portable.h"
// The templates below are over the Simd above.
#include "csrc/kernels/quantized_kernel.h"

namespace pinfer {

const LinearKernel kLinearInt8Portable = QuantizedImpl<Int8Kernel>::kKernel;
const LinearKernel kLinearInt4Portable = QuantizedImpl<Int4Kernel>::kKernel;

}  // namespace pinfer
