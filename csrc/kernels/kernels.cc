#include "csrc/kernels/kernels.h"

namespace pinfer {

namespace {

const KernelTable kPortableTable = {Isa::PORTABLE,
                                    &kLinearFloat32Portable,
                                    &kLinearBFloat16Portable,
                                    &kLinearInt8Portable,
                                    &kLinearInt4Portable,
                                    &kAttentionFloat32Portable,
                                    &kAttentionBFloat16Portable,
                                    &kAttentionInt8Portable,
                                    &kMoePortable};

#if defined(__x86_64__)
const KernelTable kAvx2Table = {
    Isa::AVX2,        &kLinearFloat32Avx2,    &kLinearBFloat16Avx2,    &kLinearInt8Avx2,
    &kLinearInt4Avx2, &kAttentionFloat32Avx2, &kAttentionBFloat16Avx2, &kAttentionInt8Avx2,
    &kMoeAvx2};
const KernelTable kAvx2VnniTable = {
    Isa::AVX2_VNNI,          &kLinearFloat32Avx2,  &kLinearBFloat16Avx2,
    &kLinearInt8Avx2Vnni,    &kLinearInt4Avx2Vnni, &kAttentionFloat32Avx2,
    &kAttentionBFloat16Avx2, &kAttentionInt8Avx2,  &kMoeAvx2};
const KernelTable kAvx512Table = {
    Isa::AVX512,        &kLinearFloat32Avx512,    &kLinearBFloat16Avx512,    &kLinearInt8Avx512,
    &kLinearInt4Avx512, &kAttentionFloat32Avx512, &kAttentionBFloat16Avx512, &kAttentionInt8Avx512,
    &kMoeAvx512};
const KernelTable kAvx512VnniTable = {
    Isa::AVX512_VNNI,          &kLinearFloat32Avx512,  &kLinearBFloat16Avx512,
    &kLinearInt8Avx512Vnni,    &kLinearInt4Avx512Vnni, &kAttentionFloat32Avx512,
    &kAttentionBFloat16Avx512, &kAttentionInt8Avx512,  &kMoeAvx512};
const KernelTable kAvx512Bf16Table = {Isa::AVX512_BF16,
                                      &kLinearFloat32Avx512,
                                      &kLinearBFloat16Avx512Bf16,
                                      &kLinearInt8Avx512Vnni,
                                      &kLinearInt4Avx512Vnni,
                                      &kAttentionFloat32Avx512,
                                      &kAttentionBFloat16Avx512Bf16,
                                      &kAttentionInt8Avx512,
                                      &kMoeAvx512};
#endif

}  // namespace

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::PORTABLE:
      break;
    case Isa::AVX2:
      return kAvx2Table;
    case Isa::AVX2_VNNI:
      return kAvx2VnniTable;
    case Isa::AVX512:
      return kAvx512Table;
    case Isa::AVX512_VNNI:
      return kAvx512VnniTable;
    case Isa::AVX512_BF16:
      return kAvx512Bf16Table;
  }
#else
  (void)isa;
#endif
  return kPortableTable;
}

const KernelTable& kernels() { return kernel_table(select_isa()); }

}  // namespace pinfer
