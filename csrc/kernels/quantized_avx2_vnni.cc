#include "csrc/kernels/simd_avx2.h"
// The templates below are over the Simd above.
#include "csrc/kernels/quantized_kernel.h"

namespace pinfer {

const LinearKernel kLinearInt8Avx2Vnni = QuantizedImpl<Int8Kernel>::kKernel;
const LinearKernel kLinearInt4Avx2Vnni = QuantizedImpl<Int4Kernel>::kKernel;

}  // namespace pinfer
