// What the processor can do, and which kernels are used for it.
#pragma once

#include <optional>
#include <string_view>

namespace pinfer {

// Paths of our kernels, in ascending order of preference. On other than x86-64 only PORTABLE.
enum class Isa {
  PORTABLE,     // any processor
  AVX2,         // AVX2, FMA and F16C
  AVX2_VNNI,    // and AVX-VNNI's dot products of bytes
  AVX512,       // AVX-512 F, BW, DQ, VL
  AVX512_VNNI,  // and its dot products of bytes
  AVX512_BF16,  // and its bfloat16 dot products
};

struct CpuFeatures {
  bool avx2 = false;  // with FMA and F16C
  bool avx2_vnni = false;
  bool avx512 = false;  // F, BW, DQ and VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
};

// Detected once. A feature counts only if the operating system saves its registers.
const CpuFeatures& cpu_features();

bool is_supported(Isa isa);

// The best supported path, or the one that was forced.
Isa select_isa();

// Forces a path (nullopt: back to the best). For tests; not while kernels run. Returns false, and
// changes nothing, if this processor does not support it.
bool force_isa(std::optional<Isa> isa);

const char* isa_name(Isa isa);  // "portable", "avx2", ...
std::optional<Isa> isa_from_name(std::string_view name);

}  // namespace pinfer
