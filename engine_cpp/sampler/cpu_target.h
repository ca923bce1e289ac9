// Loops that are compiled twice, for any CPU and for AVX2. Both do the same IEEE operations, so the
// results are equal to the bit; AVX2 without FMA on purpose.
#pragma once

#if defined(__x86_64__)
#define PINFER_TARGET_AVX2 __attribute__((target("avx2")))
#else
#define PINFER_TARGET_AVX2
#endif
#define PINFER_INLINE inline __attribute__((always_inline))

namespace pinfer {

inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace pinfer
