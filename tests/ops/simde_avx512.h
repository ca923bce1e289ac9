// AVX-512 intrinsics emulated by SIMDe on an AVX2 machine. Included before everything else
// (-include) when the AVX-512 kernels are compiled for tests: the intrinsics' names become SIMDe's.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

// What SIMDe 0.7.4 lacks, by halves.

inline __m256 emulated_upper_ps(__m512 x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}
inline __m512i emulated_join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
inline __m512 emulated_join(__m256 low, __m256 high) {
  return _mm512_castsi512_ps(emulated_join(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}
inline __m512d emulated_join(__m256d low, __m256d high) {
  return _mm512_castsi512_pd(emulated_join(_mm256_castpd_si256(low), _mm256_castpd_si256(high)));
}

inline __m512 emulated_cvtepi32_ps(__m512i x) {
  return emulated_join(_mm256_cvtepi32_ps(_mm512_castsi512_si256(x)),
                       _mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(x, 1)));
}
inline __m512i emulated_cvtepi8_epi32(__m128i x) {
  return emulated_join(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}
inline __m512i emulated_cvtepu16_epi32(__m256i x) {
  return emulated_join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                       _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}
inline __m512i emulated_cvtps_epi32(__m512 x) {
  return emulated_join(_mm256_cvtps_epi32(_mm512_castps512_ps256(x)),
                       _mm256_cvtps_epi32(emulated_upper_ps(x)));
}
inline __m512d emulated_cvtps_pd(__m256 x) {
  return emulated_join(_mm256_cvtps_pd(_mm256_castps256_ps128(x)),
                       _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
}
inline __m256 emulated_cvtpd_ps(__m512d x) {
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm512_extractf64x4_pd(x, 1)),
                         _mm256_cvtpd_ps(_mm512_castpd512_pd256(x)));
}
inline __m512i emulated_srai_epi32(__m512i x, int n) {
  return emulated_join(_mm256_srai_epi32(_mm512_castsi512_si256(x), n),
                       _mm256_srai_epi32(_mm512_extracti64x4_epi64(x, 1), n));
}

#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtps_pd emulated_cvtps_pd
#define _mm512_cvtpd_ps emulated_cvtpd_ps
#define _mm512_srai_epi32 emulated_srai_epi32
// Declared with a wrong number of arguments.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
// Only ever the upper half.
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, n) emulated_upper_ps(x)
