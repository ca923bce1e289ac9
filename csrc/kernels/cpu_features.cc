#include "csrc/kernels/cpu_features.h"

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pinfer {

namespace {

#if defined(__x86_64__)
uint64_t enabled_register_state() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

CpuFeatures detect() {
  CpuFeatures features;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool has_fma = (c >> 12) & 1, has_osxsave = (c >> 27) & 1, has_avx = (c >> 28) & 1,
             has_f16c = (c >> 29) & 1;
  if (!has_osxsave || !has_avx) return features;
  const uint64_t state = enabled_register_state();
  const bool saves_ymm = (state & 0x6) == 0x6;
  const bool saves_zmm = (state & 0xe6) == 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  const unsigned max_subleaf = a;
  features.avx2 = saves_ymm && has_fma && has_f16c && ((b >> 5) & 1);
  const bool has_avx512 = ((b >> 16) & 1) && ((b >> 17) & 1) && ((b >> 30) & 1) && ((b >> 31) & 1);
  features.avx512 = features.avx2 && saves_zmm && has_avx512;
  features.avx512_vnni = features.avx512 && ((c >> 11) & 1);
  if (max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    features.avx2_vnni = features.avx2 && ((a >> 4) & 1);
    features.avx512_bf16 = features.avx512_vnni && ((a >> 5) & 1);
  }
  return features;
}
#else
CpuFeatures detect() { return {}; }
#endif

constexpr int kNotForced = -1;
std::atomic<int> forced_isa{kNotForced};

constexpr Isa kAllIsas[] = {Isa::PORTABLE, Isa::AVX2,        Isa::AVX2_VNNI,
                            Isa::AVX512,   Isa::AVX512_VNNI, Isa::AVX512_BF16};

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

bool is_supported(Isa isa) {
  switch (isa) {
    case Isa::PORTABLE:
      return true;
    case Isa::AVX2:
      return cpu_features().avx2;
    case Isa::AVX2_VNNI:
      return cpu_features().avx2_vnni;
    case Isa::AVX512:
      return cpu_features().avx512;
    case Isa::AVX512_VNNI:
      return cpu_features().avx512_vnni;
    case Isa::AVX512_BF16:
      return cpu_features().avx512_bf16;
  }
  return false;
}

Isa select_isa() {
  const int forced = forced_isa.load(std::memory_order_relaxed);
  if (forced != kNotForced) return static_cast<Isa>(forced);
  static const Isa best = [] {
    Isa found = Isa::PORTABLE;
    for (Isa isa : kAllIsas) {
      if (is_supported(isa)) found = isa;
    }
    return found;
  }();
  return best;
}

bool force_isa(std::optional<Isa> isa) {
  if (isa && !is_supported(*isa)) return false;
  forced_isa.store(isa ? static_cast<int>(*isa) : kNotForced, std::memory_order_relaxed);
  return true;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::PORTABLE:
      return "portable";
    case Isa::AVX2:
      return "avx2";
    case Isa::AVX2_VNNI:
      return "avx2_vnni";
    case Isa::AVX512:
      return "avx512";
    case Isa::AVX512_VNNI:
      return "avx512_vnni";
    case Isa::AVX512_BF16:
      return "avx512_bf16";
  }
  return "unknown";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa : kAllIsas) {
    if (name == isa_name(isa)) return isa;
  }
  return std::nullopt;
}

}  // namespace pinfer
