#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/kernels/attention_kernel.h"

namespace pinfer {

const AttentionKernel kAttentionFloat32Avx512 = kAttentionFloat32;
const AttentionKernel kAttentionBFloat16Avx512 = kAttentionBFloat16;
const AttentionKernel kAttentionInt8Avx512 = kAttentionInt8;

}  // namespace pinfer
