// The SIMD vocabulary of the kernels (see simd_avx2.h), 4 lanes, with the compiler's own vectors:
// SSE2 on x86-64, NEON on aarch64, anything elsewhere.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pinfer {
namespace {

struct Simd {
  static constexpr int kLanes = 4;
#if defined(__aarch64__)
  static constexpr int kTileRows = 6;
#else
  static constexpr int kTileRows = 3;
#endif
  static constexpr bool kHasBFloat16Dot = false;
  static constexpr int panels_for(int rows) { return rows == 1 ? 2 : 1; }

  static constexpr int kByteTileRows = 2;
  static constexpr int byte_panels_for(int) { return 1; }

  typedef float F __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef I M;

  static F zero() { return F{}; }
  static F set1(float x) { return F{x, x, x, x}; }
  static I set1_int(int32_t x) { return I{x, x, x, x}; }
  static F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static void store(float* p, F x) { std::memcpy(p, &x, sizeof(x)); }
  static I load_int(const void* p) {
    I x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static void store_int(void* p, I x) { std::memcpy(p, &x, sizeof(x)); }
  static void store_bytes(int8_t* p, I x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(x[i]);
  }
  static F load_bfloat16(const uint16_t* p) {
    const I x = {p[0], p[1], p[2], p[3]};
    return as_float(x << 16);
  }
  static F load_float16(const uint16_t* p) {
    // Exponents are moved by a multiplication, which also does for subnormal numbers.
    const I bits = {p[0], p[1], p[2], p[3]};
    const F value = as_float((bits & 0x7fff) << 13) * 0x1p112f;
    return as_float(as_int(value) | (bits & 0x8000) << 16);
  }
  static F load_int8(const int8_t* p) { return to_float(I{p[0], p[1], p[2], p[3]}); }

  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
#if defined(__aarch64__)
  static float32x4_t neon(F x) { return reinterpret_cast<float32x4_t>(x); }
  static F fma(F a, F b, F c) { return reinterpret_cast<F>(vfmaq_f32(neon(c), neon(a), neon(b))); }
  static F fnma(F a, F b, F c) { return reinterpret_cast<F>(vfmsq_f32(neon(c), neon(a), neon(b))); }
#else
  // Two roundings: a fused multiply-add in software would be far too slow.
  static F fma(F a, F b, F c) { return a * b + c; }
  static F fnma(F a, F b, F c) { return c - a * b; }
#endif
  static F min(F a, F b) { return a < b ? a : b; }
  static F max(F a, F b) { return a > b ? a : b; }

  static F as_float(I x) { return reinterpret_cast<F>(x); }
  static I as_int(F x) { return reinterpret_cast<I>(x); }
  static I to_int(F x) {
    // Adding 1.5 * 2^23 leaves the rounded integer in the low bits. REQUIRES |x| < 2^22.
    const F magic = set1(12582912.0f);
    return as_int(x + magic) - as_int(magic);
  }
  static F to_float(I x) { return __builtin_convertvector(x, F); }
  static I add_int(I a, I b) { return a + b; }
  static I sub_int(I a, I b) { return a - b; }
  static I and_int(I a, I b) { return a & b; }
  static I xor_int(I a, I b) { return a ^ b; }
  static I or_int(I a, I b) { return a | b; }
  template <int n>
  static I shift_left(I x) {
    return x << n;
  }
  template <int n>
  static I shift_right_arithmetic(I x) {
    return x >> n;
  }

  static constexpr bool kHasByteDot = true;
  static I dot_bytes(I sum, I u, I s) {
    // A 32-bit lane holds four bytes: each in turn is brought to the lane's low or high end.
    const I low = set1_int(0xff);
    sum += (u & low) * ((s << 24) >> 24);
    sum += ((u >> 8) & low) * ((s << 16) >> 24);
    sum += ((u >> 16) & low) * ((s << 8) >> 24);
    return sum + ((u >> 24) & low) * (s >> 24);
  }
  static I dot_nibbles(I sum, I u, I s) { return dot_bytes(sum, u, s); }
  static I nibble_sums(I dots) { return dots; }

  static M less(F a, F b) { return a < b; }
  static M greater_int(I a, I b) { return a > b; }
  static F select(M m, F a, F b) { return m ? a : b; }
  static bool any(M m) { return (m[0] | m[1] | m[2] | m[3]) != 0; }

  static I lane_index() { return I{0, 1, 2, 3}; }
  static float reduce_max(F x) {
    const float low = x[0] > x[1] ? x[0] : x[1], high = x[2] > x[3] ? x[2] : x[3];
    return low > high ? low : high;
  }
  static float reduce_add(F x) { return (x[0] + x[1]) + (x[2] + x[3]); }
};

}  // namespace
}  // namespace pinfer
