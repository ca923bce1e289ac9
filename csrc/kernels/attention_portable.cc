#include "csrc/kernels/simd_portable.h"
// The templates below are over the Simd above.
#include "csrc/kernels/attention_kernel.h"

namespace pinfer {

const AttentionKernel kAttentionFloat32Portable = kAttentionFloat32;
const AttentionKernel kAttentionBFloat16Portable = kAttentionBFloat16;
const AttentionKernel kAttentionInt8Portable = kAttentionInt8;

}  // namespace pinfer
