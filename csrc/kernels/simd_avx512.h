// The SIMD vocabulary of the kernels (see simd_avx2.h), 16 lanes: AVX-512 F, BW, DQ, VL. Include
// only in files compiled for it. Tests also compile it with these instructions emulated.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace pinfer {
namespace {

struct Simd {
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 12;
#if defined(PINFER_AVX512_BF16)
  static constexpr bool kHasBFloat16Dot = true;
#else
  static constexpr bool kHasBFloat16Dot = false;
#endif
  static constexpr int panels_for(int rows) { return rows <= 2 ? 8 : rows <= 6 ? 4 : 2; }

  static constexpr int kByteTileRows = 12;
  static constexpr int byte_panels_for(int rows) { return rows == 1 ? 4 : 2; }

  using F = __m512;
  using I = __m512i;
  using M = __mmask16;

  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static I set1_int(int32_t x) { return _mm512_set1_epi32(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static I load_int(const void* p) { return _mm512_loadu_si512(p); }
  static void store_int(void* p, I x) { _mm512_storeu_si512(p, x); }
  // The low byte of every lane.
  static void store_bytes(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }
  static F load_bfloat16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static F load_float16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
#if defined(PINFER_AVX512_BF16)
  // acc + x[2i] * w[2i] + x[2i + 1] * w[2i + 1] for pairs of bfloat16.
  static F bfloat16_dot(I x, I w, F acc) {
    return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
  // 16 numbers as bfloat16, to nearest even; subnormal ones, which bfloat16_dot takes for zeros,
  // as zeros.
  static void store_bfloat16(void* p, F x) {
    const auto rounded = _mm512_cvtneps_pbh(x);
    __builtin_memcpy(p, &rounded, sizeof(rounded));
  }
#endif

#if defined(PINFER_VNNI)
  static constexpr bool kHasByteDot = true;
  static I dot_bytes(I sum, I u, I s) {
#if defined(PINFER_EMULATED)
    return _mm512_dpbusd_epi32(sum, u, s);
#else
    // gcc 12 copies the sum before and after the intrinsic.
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u), "v"(s));
    return sum;
#endif
  }
  static I dot_nibbles(I sum, I u, I s) { return dot_bytes(sum, u, s); }
  static I nibble_sums(I dots) { return dots; }
#else
  static constexpr bool kHasByteDot = false;
  static I add_pairs(I sum, I x) {
    return add_int(sum, _mm512_madd_epi16(x, _mm512_set1_epi16(1)));
  }
  static I dot_bytes(I sum, I u, I s) { return add_pairs(sum, _mm512_maddubs_epi16(u, s)); }
  static I abs_bytes(I a) { return _mm512_abs_epi8(a); }
  static I sign_bytes(I a, I b) {
    return _mm512_mask_sub_epi8(a, _mm512_movepi8_mask(b), _mm512_setzero_si512(), a);
  }
  static I dot_nibbles(I sum, I u, I s) {
    return _mm512_add_epi16(sum, _mm512_maddubs_epi16(u, s));
  }
  static I nibble_sums(I dots) { return _mm512_madd_epi16(dots, _mm512_set1_epi16(1)); }
#endif

  static F as_float(I x) { return _mm512_castsi512_ps(x); }
  static I as_int(F x) { return _mm512_castps_si512(x); }
  static I to_int(F x) { return _mm512_cvtps_epi32(x); }
  static F to_float(I x) { return _mm512_cvtepi32_ps(x); }
  static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I and_int(I a, I b) { return _mm512_and_si512(a, b); }
  static I xor_int(I a, I b) { return _mm512_xor_si512(a, b); }
  static I or_int(I a, I b) { return _mm512_or_si512(a, b); }
  template <int n>
  static I shift_left(I x) {
    return _mm512_slli_epi32(x, n);
  }
  template <int n>
  static I shift_right_arithmetic(I x) {
    return _mm512_srai_epi32(x, n);
  }

  static M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M not_less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }  // or NaN
  static M greater_int(I a, I b) { return _mm512_cmpgt_epi32_mask(a, b); }
  static F select(M m, F a, F b) { return _mm512_mask_blend_ps(m, b, a); }
  static bool any(M m) { return m != 0; }

  static I lane_index() {
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  }
  static float reduce_max(F x) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  static float reduce_add(F x) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }

  // Doubles, kLanes / 2 at a time, for functions that need more than float's precision inside.
  using D = __m512d;
  using DM = __mmask8;
  static D low_double(F x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
  static D high_double(F x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
  static F from_doubles(D low, D high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high),
                              1);
  }
  static D set1_double(double x) { return _mm512_set1_pd(x); }
  static D add(D a, D b) { return _mm512_add_pd(a, b); }
  static D sub(D a, D b) { return _mm512_sub_pd(a, b); }
  static D mul(D a, D b) { return _mm512_mul_pd(a, b); }
  static D div(D a, D b) { return _mm512_div_pd(a, b); }
  static D fma(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }
  static D fnma(D a, D b, D c) { return _mm512_fnmadd_pd(a, b, c); }
  static D min(D a, D b) { return _mm512_min_pd(a, b); }
  static D max(D a, D b) { return _mm512_max_pd(a, b); }
  static DM less(D a, D b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  static D select(DM m, D a, D b) { return _mm512_mask_blend_pd(m, b, a); }
  static __m512i bits(D x) { return _mm512_castpd_si512(x); }
  static D from_bits(__m512i x) { return _mm512_castsi512_pd(x); }
  static __m512i set1_bits(int64_t x) { return _mm512_set1_epi64(x); }
  static __m512i add_bits(__m512i a, __m512i b) { return _mm512_add_epi64(a, b); }
  static __m512i sub_bits(__m512i a, __m512i b) { return _mm512_sub_epi64(a, b); }
  static __m512i and_bits(__m512i a, __m512i b) { return _mm512_and_si512(a, b); }
  static __m512i or_bits(__m512i a, __m512i b) { return _mm512_or_si512(a, b); }
  static __m512i xor_bits(__m512i a, __m512i b) { return _mm512_xor_si512(a, b); }
  template <int n>
  static __m512i shift_left_bits(__m512i x) {
    return _mm512_slli_epi64(x, n);
  }
  template <int n>
  static __m512i shift_right_bits(__m512i x) {
    return _mm512_srli_epi64(x, n);
  }
  static DM equal_bits(__m512i a, __m512i b) { return _mm512_cmpeq_epi64_mask(a, b); }
};

}  // namespace
}  // namespace pinfer
