// AVX-512 intrinsics emulated by SIMDe on an AVX2 machine. Included before everything else
// (-include) when the AVX-512 kernels are compiled for tests: the intrinsics' names become SIMDe's.
#pragma once

#define PINFER_EMULATED
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
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
inline __m512 emulated_cvtph_ps(__m256i x) {
  return emulated_join(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                       _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
inline __m256 emulated_cvtpd_ps(__m512d x) {
  return _mm256_set_m128(_mm256_cvtpd_ps(_mm512_extractf64x4_pd(x, 1)),
                         _mm256_cvtpd_ps(_mm512_castpd512_pd256(x)));
}
inline __m128i emulated_cvtepi32_epi8(__m512i x) {
  const __m512i bytes = _mm512_and_si512(x, _mm512_set1_epi32(0xff));
  const __m256i low = _mm512_castsi512_si256(bytes), high = _mm512_extracti64x4_epi64(bytes, 1);
  const __m128i low_words =
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  const __m128i high_words =
      _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  return _mm_packus_epi16(low_words, high_words);
}
inline __m256i emulated_cvtneps_pbh(__m512 x) {
  float numbers[16];
  uint16_t rounded[16];
  _mm512_storeu_ps(numbers, x);
  for (int i = 0; i < 16; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &numbers[i], sizeof(bits));
    const uint32_t exponent = bits & 0x7f800000;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    bits = exponent == 0 ? bits & 0x80000000 : bits;
    bits = is_nan ? bits | 0x400000 : bits + 0x7fff + ((bits >> 16) & 1);
    rounded[i] = static_cast<uint16_t>(bits >> 16);
  }
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rounded));
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
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtpd_ps emulated_cvtpd_ps
#define _mm512_cvtepi32_epi8 emulated_cvtepi32_epi8
#define _mm512_cvtneps_pbh emulated_cvtneps_pbh
#define _mm512_srai_epi32 emulated_srai_epi32
// Declared with a wrong number of arguments.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
// Only ever the upper half.
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps(x, n) emulated_upper_ps(x)
