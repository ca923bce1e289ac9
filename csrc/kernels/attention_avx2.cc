#include "csrc/kernels/simd_avx2.h"
// The templates below are over the Simd above.
#include "csrc/kernels/attention_kernel.h"

namespace pinfer {

const AttentionKernel kAttentionFloat32Avx2 = kAttentionFloat32;
const AttentionKernel kAttentionBFloat16Avx2 = kAttentionBFloat16;
const AttentionKernel kAttentionInt8Avx2 = kAttentionInt8;

}  // namespace pinfer
