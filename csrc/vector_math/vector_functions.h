// The vector functions over one `Simd`; included, after one simd_*.h, by the files of each
// instruction set: by the table for compiled artifacts, and by kernels that must give the same
// numbers. See vector_math.h. No functions of the standard library here.
#pragma once

#include <cstdint>

#include "csrc/kernels/exp_kernel.h"
#include "csrc/vector_math/vector_math.h"

namespace pinfer {
namespace {

using F = Simd::F;
using D = Simd::D;

constexpr double kLn2High = 0x1.62e42fefa38p-1;  // its low bits are 0: products with n are exact
constexpr double kLn2Low = 0x1.ef35793c7673p-45;
constexpr double kLog2E = 1.4426950408889634074;
constexpr double kLog10E = 0.43429448190325182765;
constexpr double kRoundingMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer

inline D constant(double x) { return Simd::set1_double(x); }

inline D absolute(D x) {
  return Simd::from_bits(
      Simd::and_bits(Simd::bits(x), Simd::set1_bits(static_cast<int64_t>(~0ull >> 1))));
}

inline D with_sign_of(D magnitude, D sign) {
  const auto sign_bit =
      Simd::and_bits(Simd::bits(sign), Simd::set1_bits(static_cast<int64_t>(1ull << 63)));
  return Simd::from_bits(Simd::or_bits(Simd::bits(magnitude), sign_bit));
}

// c[0] + c[1] x + ...
template <int n>
inline D polynomial(const double (&c)[n], D x) {
  D sum = constant(c[n - 1]);
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) sum = Simd::fma(sum, x, constant(c[i]));
  return sum;
}

// 2^n * exp(r) where t = n + kRoundingMagic and |r| <= ln 2 / 2.
inline D scaled_exp(D t, D r) {
  constexpr double kExp[] = {1.0,
                             1.0000000000000068101,
                             0.50000000000000056734,
                             0.16666666666553502753,
                             0.041666666666572391458,
                             0.0083333333859827838024,
                             0.001388888893275100025,
                             0.00019841169871202734661,
                             0.000024801504014426905068,
                             2.7640346826138499161e-6,
                             2.7626495546432196255e-7};
  const D p = polynomial(kExp, r);
  const auto exponent = Simd::template shift_left_bits<52>(Simd::bits(t));
  return Simd::from_bits(Simd::add_bits(Simd::bits(p), exponent));
}

// exp(x) to 1e-14; arguments beyond +-700 count as +-700.
inline D exp_double(D x) {
  x = Simd::min(constant(700.0), x);
  x = Simd::max(constant(-700.0), x);
  const D t = Simd::fma(x, constant(kLog2E), constant(kRoundingMagic));
  const D n = Simd::sub(t, constant(kRoundingMagic));
  D r = Simd::fnma(n, constant(kLn2High), x);
  r = Simd::fnma(n, constant(kLn2Low), r);
  return scaled_exp(t, r);
}

// Natural logarithm to 1e-11. Not for denormal doubles (floats have none as doubles).
inline D log_double(D x) {
  constexpr double kAtanh[] = {2.0,       2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0,
                               2.0 / 9.0, 2.0 / 11., 2.0 / 13., 2.0 / 15.};
  constexpr double kInfinity = __builtin_inf();
  // x = 2^k * m with m in [sqrt(1/2), sqrt(2)).
  const auto one = Simd::set1_bits(0x3ff0000000000000), root = Simd::set1_bits(0x3fe6a09e667f3bcd);
  const auto shifted = Simd::add_bits(Simd::bits(x), Simd::sub_bits(one, root));
  const auto fraction = Simd::and_bits(shifted, Simd::set1_bits(0x000fffffffffffff));
  const D m = Simd::from_bits(Simd::add_bits(fraction, root));
  const auto exponent = Simd::template shift_right_bits<52>(shifted);
  const D two52 = constant(4503599627370496.0);
  const D k = Simd::sub(Simd::from_bits(Simd::or_bits(exponent, Simd::bits(two52))),
                        constant(4503599627370496.0 + 1023.0));
  // log(m) = 2 atanh(s), s = (m - 1) / (m + 1).
  const D s = Simd::div(Simd::sub(m, constant(1.0)), Simd::add(m, constant(1.0)));
  const D log_m = Simd::mul(s, polynomial(kAtanh, Simd::mul(s, s)));
  D y = Simd::fma(k, constant(kLn2High), Simd::fma(k, constant(kLn2Low), log_m));
  const D zero = constant(0.0);
  const D at_most_zero =
      Simd::select(Simd::less(x, zero), constant(__builtin_nan("")), constant(-kInfinity));
  y = Simd::select(Simd::less(zero, x), y, at_most_zero);
  return Simd::select(Simd::less(x, constant(kInfinity)), y, x);  // inf and NaN
}

inline D exp2_double(D x) {
  x = Simd::min(constant(700.0), x);
  x = Simd::max(constant(-700.0), x);
  const D t = Simd::add(x, constant(kRoundingMagic));
  const D n = Simd::sub(t, constant(kRoundingMagic));
  return scaled_exp(t, Simd::mul(Simd::sub(x, n), constant(0.69314718055994530942)));
}

inline D expm1_double(D x) {
  constexpr double kSmall[] = {1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24};
  const D small = Simd::mul(x, polynomial(kSmall, x));
  const D large = Simd::sub(exp_double(x), constant(1.0));
  return Simd::select(Simd::less(absolute(x), constant(0x1p-10)), small, large);
}

inline D log1p_double(D x) {
  constexpr double kSmall[] = {1.0, -1.0 / 2, 1.0 / 3, -1.0 / 4};
  const D small = Simd::mul(x, polynomial(kSmall, x));
  const D large = log_double(Simd::add(constant(1.0), x));
  return Simd::select(Simd::less(absolute(x), constant(0x1p-10)), small, large);
}

inline D log2_double(D x) { return Simd::mul(log_double(x), constant(kLog2E)); }
inline D log10_double(D x) { return Simd::mul(log_double(x), constant(kLog10E)); }

inline D tanh_double(D x) {
  constexpr double kSmall[] = {1.0, -1.0 / 3, 2.0 / 15};
  const D magnitude = absolute(x);
  const D small = Simd::mul(magnitude, polynomial(kSmall, Simd::mul(x, x)));
  // (1 - t) / (1 + t), t = exp(-2 |x|).
  const D t = exp_double(Simd::mul(magnitude, constant(-2.0)));
  const D large = Simd::div(Simd::sub(constant(1.0), t), Simd::add(constant(1.0), t));
  return with_sign_of(Simd::select(Simd::less(magnitude, constant(0x1p-8)), small, large), x);
}

inline D erf_double(D x) {
  // erf(x) / x in x^2 on [0, 1].
  constexpr double kSmall[] = {
      1.1283791670946767327,    -0.37612638889635306771,     0.11283791308604581452,
      -0.026866133235095591563, 0.005223783477189248115,     -0.00085426379970872296266,
      0.0001195656256820732956, -0.000013909340021874598594, 1.0589380641075019183e-6};
  // log(1 - erf(x)) on [1, 3.95]; beyond, a float's erf is 1.
  constexpr double kLarge[] = {0.00040743654139918811489, -1.1306344499497119732,
                               -0.63103334239707900854,   -0.11096526053336862698,
                               0.027036872114743546698,   -0.0050365914582181942279,
                               0.00067750465177292474335, -0.000060763421716806066934,
                               3.1605882126646808931e-6,  -6.847706637677174475e-8};
  const D magnitude = Simd::min(constant(3.95), absolute(x));
  const D small = Simd::mul(magnitude, polynomial(kSmall, Simd::mul(magnitude, magnitude)));
  const D large = Simd::sub(constant(1.0), exp_double(polynomial(kLarge, magnitude)));
  return with_sign_of(Simd::select(Simd::less(magnitude, constant(1.0)), small, large), x);
}

struct SinCos {
  D sin, cos;
};

// REQUIRES |x| < 2^30: the reduction by multiples of pi/2 is then exact to far below a float.
inline SinCos sin_cos_double(D x) {
  constexpr double kSin[] = {1.0,           -1.0 / 6,       1.0 / 120,         -1.0 / 5040,
                             1.0 / 362880., -1. / 39916800, 1.0 / 6227020800.0};
  constexpr double kCos[] = {1.0,          -1.0 / 2,        1.0 / 24,        -1.0 / 720,
                             1.0 / 40320., -1.0 / 3628800., 1.0 / 479001600, -1.0 / 87178291200.};
  const D t = Simd::fma(x, constant(0.63661977236758134308), constant(kRoundingMagic));
  const D n = Simd::sub(t, constant(kRoundingMagic));
  D r = Simd::fnma(n, constant(0x1.921fb54442d18p0), x);
  r = Simd::fnma(n, constant(0x1.1a62633145c07p-54), r);
  const D r2 = Simd::mul(r, r);
  const D sin_r = Simd::mul(r, polynomial(kSin, r2));
  const D cos_r = polynomial(kCos, r2);
  // Quadrants swap the two and flip signs.
  const auto quadrant = Simd::and_bits(Simd::bits(t), Simd::set1_bits(3));
  const auto odd = Simd::and_bits(quadrant, Simd::set1_bits(1));
  const auto swaps = Simd::equal_bits(odd, Simd::set1_bits(1));
  const auto upper =
      Simd::template shift_left_bits<62>(Simd::and_bits(quadrant, Simd::set1_bits(2)));
  const auto cos_sign = Simd::xor_bits(upper, Simd::template shift_left_bits<63>(odd));
  const D s = Simd::select(swaps, cos_r, sin_r), c = Simd::select(swaps, sin_r, cos_r);
  return {Simd::from_bits(Simd::xor_bits(Simd::bits(s), upper)),
          Simd::from_bits(Simd::xor_bits(Simd::bits(c), cos_sign))};
}

inline D sin_double(D x) { return sin_cos_double(x).sin; }
inline D cos_double(D x) { return sin_cos_double(x).cos; }
inline D tan_double(D x) {
  const SinCos both = sin_cos_double(x);
  return Simd::div(both.sin, both.cos);
}

template <D (*function)(D)>
inline F by_doubles(F x) {
  return Simd::from_doubles(function(Simd::low_double(x)), function(Simd::high_double(x)));
}

// Trigonometric functions: huge arguments (and inf, NaN) one by one.
template <D (*function)(D), float (*scalar)(float)>
inline F trigonometric(F x) {
  F y = by_doubles<function>(x);
  const F limit = Simd::set1(0x1p30f);
  const F magnitude = Simd::as_float(Simd::and_int(Simd::as_int(x), Simd::set1_int(0x7fffffff)));
  if (Simd::any(Simd::not_less(magnitude, limit))) {
    float in[Simd::kLanes], out[Simd::kLanes];
    Simd::store(in, x);
    Simd::store(out, y);
    for (int i = 0; i < Simd::kLanes; ++i) {
      if (!(in[i] < 0x1p30f && in[i] > -0x1p30f)) out[i] = scalar(in[i]);
    }
    y = Simd::load(out);
  }
  return y;
}

inline F vector_exp(F x) { return exp_float(x); }
inline F vector_exp2(F x) { return by_doubles<exp2_double>(x); }
inline F vector_expm1(F x) { return by_doubles<expm1_double>(x); }
inline F vector_log(F x) { return by_doubles<log_double>(x); }
inline F vector_log2(F x) { return by_doubles<log2_double>(x); }
inline F vector_log10(F x) { return by_doubles<log10_double>(x); }
inline F vector_log1p(F x) { return by_doubles<log1p_double>(x); }
inline F vector_tanh(F x) { return by_doubles<tanh_double>(x); }
inline F vector_erf(F x) { return by_doubles<erf_double>(x); }
inline F vector_sin(F x) { return trigonometric<sin_double, scalar_sin>(x); }
inline F vector_cos(F x) { return trigonometric<cos_double, scalar_cos>(x); }
inline F vector_tan(F x) { return trigonometric<tan_double, scalar_tan>(x); }

}  // namespace
}  // namespace pinfer
