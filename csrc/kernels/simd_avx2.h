// The SIMD vocabulary of the kernels, 8 lanes: AVX2 and FMA. Include only in files compiled for it.
//
// Every simd_*.h defines `struct Simd` with the same members in an anonymous namespace, so that
// code compiled for one instruction set is never linked into another. Meaning of the members:
//   F, I, M          kLanes floats, kLanes int32, a mask of lanes
//   fma(a, b, c)     a * b + c; fnma(a, b, c): c - a * b
//   min, max(a, b)   b where either is NaN
//   select(m, a, b)  a where the mask is set, else b
// Of quantised weights (quantized_kernel.h):
//   kHasByteDot      dot_bytes is exact for any bytes; else for u up to 128 and s up to 127 in size
//   abs_bytes(a)               |a|, unsigned: 128 for -128
//   dot_bytes(sum, u, s)       sum + the products of four unsigned and signed bytes of each lane
//   sign_bytes(a, b)           a with its sign changed where b is negative
//   dot_nibbles(sum, u, s)     the same for u of at most 15, in a form that holds 32 numbers
//   nibble_sums(dots)          what dot_nibbles has summed, as integers
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace pinfer {
namespace {

struct Simd {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;  // rows of a register tile over one panel of 16 outputs
  static constexpr bool kHasBFloat16Dot = false;
  // Panels that a tile of that many rows spans: enough independent sums to hide FMA's latency.
  static constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

  static constexpr int kByteTileRows = 4;
  static constexpr int byte_panels_for(int rows) { return rows == 1 ? 2 : 1; }

  using F = __m256;
  using I = __m256i;
  using M = __m256;

  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static I set1_int(int32_t x) { return _mm256_set1_epi32(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static I load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store_int(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  // Every lane as a byte. REQUIRES that it fits.
  static void store_bytes(int8_t* p, I x) {
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static F load_bfloat16(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static F load_float16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }

  static F as_float(I x) { return _mm256_castsi256_ps(x); }
  static I as_int(F x) { return _mm256_castps_si256(x); }
  static I to_int(F x) { return _mm256_cvtps_epi32(x); }  // rounds to nearest even
  static F to_float(I x) { return _mm256_cvtepi32_ps(x); }
  static I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I and_int(I a, I b) { return _mm256_and_si256(a, b); }
  static I xor_int(I a, I b) { return _mm256_xor_si256(a, b); }
  static I or_int(I a, I b) { return _mm256_or_si256(a, b); }
  template <int n>
  static I shift_left(I x) {
    return _mm256_slli_epi32(x, n);
  }
  template <int n>
  static I shift_right_arithmetic(I x) {
    return _mm256_srai_epi32(x, n);
  }

#if defined(PINFER_VNNI)
  static constexpr bool kHasByteDot = true;
  static I dot_bytes(I sum, I u, I s) {
    // gcc 12 copies the sum before and after the intrinsic.
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u), "x"(s));
    return sum;
  }
  static I dot_nibbles(I sum, I u, I s) { return dot_bytes(sum, u, s); }
  static I nibble_sums(I dots) { return dots; }
#else
  static constexpr bool kHasByteDot = false;
  static I add_pairs(I sum, I x) {
    return add_int(sum, _mm256_madd_epi16(x, _mm256_set1_epi16(1)));
  }
  static I dot_bytes(I sum, I u, I s) { return add_pairs(sum, _mm256_maddubs_epi16(u, s)); }
  static I abs_bytes(I a) { return _mm256_abs_epi8(a); }
  static I sign_bytes(I a, I b) { return _mm256_sign_epi8(a, b); }
  static I dot_nibbles(I sum, I u, I s) {
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(u, s));
  }
  static I nibble_sums(I dots) { return _mm256_madd_epi16(dots, _mm256_set1_epi16(1)); }
#endif

  static M less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M not_less(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }  // or NaN
  static M greater_int(I a, I b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)); }
  static F select(M m, F a, F b) { return _mm256_blendv_ps(b, a, m); }
  static bool any(M m) { return _mm256_movemask_ps(m) != 0; }

  static I lane_index() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static float reduce_max(F x) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  static float reduce_add(F x) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }

  // Doubles, kLanes / 2 at a time, for functions that need more than float's precision inside.
  using D = __m256d;
  using DM = __m256d;
  static D low_double(F x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
  static D high_double(F x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
  static F from_doubles(D low, D high) {
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
  }
  static D set1_double(double x) { return _mm256_set1_pd(x); }
  static D add(D a, D b) { return _mm256_add_pd(a, b); }
  static D sub(D a, D b) { return _mm256_sub_pd(a, b); }
  static D mul(D a, D b) { return _mm256_mul_pd(a, b); }
  static D div(D a, D b) { return _mm256_div_pd(a, b); }
  static D fma(D a, D b, D c) { return _mm256_fmadd_pd(a, b, c); }
  static D fnma(D a, D b, D c) { return _mm256_fnmadd_pd(a, b, c); }
  static D min(D a, D b) { return _mm256_min_pd(a, b); }
  static D max(D a, D b) { return _mm256_max_pd(a, b); }
  static DM less(D a, D b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  static D select(DM m, D a, D b) { return _mm256_blendv_pd(b, a, m); }
  // Bits of 64-bit lanes.
  static __m256i bits(D x) { return _mm256_castpd_si256(x); }
  static D from_bits(__m256i x) { return _mm256_castsi256_pd(x); }
  static __m256i set1_bits(int64_t x) { return _mm256_set1_epi64x(x); }
  static __m256i add_bits(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }
  static __m256i sub_bits(__m256i a, __m256i b) { return _mm256_sub_epi64(a, b); }
  static __m256i and_bits(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
  static __m256i or_bits(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }
  static __m256i xor_bits(__m256i a, __m256i b) { return _mm256_xor_si256(a, b); }
  template <int n>
  static __m256i shift_left_bits(__m256i x) {
    return _mm256_slli_epi64(x, n);
  }
  template <int n>
  static __m256i shift_right_bits(__m256i x) {
    return _mm256_srli_epi64(x, n);
  }
  static DM equal_bits(__m256i a, __m256i b) {
    return _mm256_castsi256_pd(_mm256_cmpeq_epi64(a, b));
  }
};

}  // namespace
}  // namespace pinfer
