#include "kernel_sets.h"

#include <cstdio>

#include "csrc/kernels/cpu_features.h"

namespace pinfer {

#if defined(PINFER_HAVE_SIMDE)
extern const LinearKernel kLinearFloat32Emulated, kLinearBFloat16Emulated;
extern const AttentionKernel kAttentionFloat32Emulated, kAttentionBFloat16Emulated,
    kAttentionInt8Emulated;
extern const LinearKernel kLinearInt8Emulated, kLinearInt4Emulated;
extern const LinearKernel kLinearInt8VnniEmulated, kLinearInt4VnniEmulated;
extern const LinearKernel kLinearBFloat16DotEmulated;
extern const AttentionKernel kAttentionBFloat16DotEmulated;
extern const MoeKernel kMoeEmulated;
extern const VectorFunctionTable kVectorFunctionsEmulated;
#endif

namespace {

// Once per program, and not on standard output, from which test names are read.
void say_what_is_missing() {
  static bool said = false;
  if (said) return;
  said = true;
  for (Isa isa : {Isa::AVX2, Isa::AVX2_VNNI, Isa::AVX512, Isa::AVX512_VNNI, Isa::AVX512_BF16}) {
    if (!is_supported(isa)) {
      std::fprintf(stderr, "note: this processor has no %s: not run natively\n", isa_name(isa));
    }
  }
#if !defined(PINFER_HAVE_SIMDE)
  std::fprintf(stderr, "note: built without SIMDe: AVX-512 is not emulated\n");
#endif
}

}  // namespace

std::vector<KernelSet> available_kernel_sets() {
  say_what_is_missing();
  std::vector<KernelSet> sets;
  for (Isa isa : {Isa::PORTABLE, Isa::AVX2, Isa::AVX2_VNNI, Isa::AVX512, Isa::AVX512_VNNI,
                  Isa::AVX512_BF16}) {
    if (!is_supported(isa)) continue;
    const KernelTable& table = kernel_table(isa);
    sets.push_back({isa_name(isa), table.linear_float32, table.linear_bfloat16, table.linear_int8,
                    table.linear_int4, table.attention_float32, table.attention_bfloat16,
                    table.attention_int8, table.moe});
  }
#if defined(PINFER_HAVE_SIMDE)
  if (is_supported(Isa::AVX2)) {
    sets.push_back({"avx512_emulated_by_simde", &kLinearFloat32Emulated, &kLinearBFloat16Emulated,
                    &kLinearInt8Emulated, &kLinearInt4Emulated, &kAttentionFloat32Emulated,
                    &kAttentionBFloat16Emulated, &kAttentionInt8Emulated, &kMoeEmulated});
    sets.push_back({"avx512_bf16_emulated_by_simde", &kLinearFloat32Emulated,
                    &kLinearBFloat16DotEmulated, &kLinearInt8VnniEmulated, &kLinearInt4VnniEmulated,
                    &kAttentionFloat32Emulated, &kAttentionBFloat16DotEmulated,
                    &kAttentionInt8Emulated, &kMoeEmulated});
  }
#endif
  return sets;
}

std::vector<VectorFunctionSet> available_vector_function_sets() {
  std::vector<VectorFunctionSet> sets;
#if defined(__x86_64__)
  if (is_supported(Isa::AVX2)) sets.push_back({"avx2", &kVectorFunctionsAvx2});
  if (is_supported(Isa::AVX512)) sets.push_back({"avx512", &kVectorFunctionsAvx512});
#endif
#if defined(PINFER_HAVE_SIMDE)
  if (is_supported(Isa::AVX2)) {
    sets.push_back({"avx512_emulated_by_simde", &kVectorFunctionsEmulated});
  }
#endif
  return sets;
}

}  // namespace pinfer
