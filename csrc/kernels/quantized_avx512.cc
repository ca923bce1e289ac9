#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/kernels/quantized_kernel.h"

namespace pinfer {

const LinearKernel kLinearInt8Avx512 = QuantizedImpl<Int8Kernel>::kKernel;
const LinearKernel kLinearInt4Avx512 = QuantizedImpl<Int4Kernel>::kKernel;

}  // namespace pinfer
