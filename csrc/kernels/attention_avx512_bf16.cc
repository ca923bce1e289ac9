#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/kernels/attention_kernel.h"

namespace pinfer {

// float32 is the same as without bfloat16 instructions.
const AttentionKernel kAttentionBFloat16Avx512Bf16 = kAttentionBFloat16;

}  // namespace pinfer
