// exp for vectors of floats, shared by attention and the vector functions (see vector_math/).
#pragma once

#include <cstdint>

namespace pinfer {
namespace {

// Error below 1 ulp with fused multiply-add. exp(-inf) = 0, exp(inf) = inf, NaN stays NaN; results
// below the normal range are denormal.
inline Simd::F exp_float(Simd::F x) {
  using F = Simd::F;
  using I = Simd::I;
  // Beyond these the result is inf or 0 anyway. The order of operands keeps NaN.
  x = Simd::min(Simd::set1(89.0f), x);
  x = Simd::max(Simd::set1(-105.0f), x);
  const I n = Simd::to_int(Simd::mul(x, Simd::set1(1.44269504088896341f)));
  const F nf = Simd::to_float(n);
  // ln 2 in two parts, so that n * ln 2 loses nothing.
  F r = Simd::fnma(nf, Simd::set1(0.693145751953125f), x);
  r = Simd::fnma(nf, Simd::set1(1.42860677e-6f), r);
  // (exp(r) - 1 - r) / r^2 on [-ln 2 / 2, ln 2 / 2].
  F p = Simd::set1(0.00019891080464f);
  p = Simd::fma(p, r, Simd::set1(0.00139337307158f));
  p = Simd::fma(p, r, Simd::set1(0.00833331084465f));
  p = Simd::fma(p, r, Simd::set1(0.0416664641974f));
  p = Simd::fma(p, r, Simd::set1(0.166666666817f));
  p = Simd::fma(p, r, Simd::set1(0.500000001354f));
  p = Simd::add(Simd::fma(Simd::mul(r, r), p, r), Simd::set1(1.0f));
  // 2^n as a product of two: n itself may not fit an exponent.
  const I half = Simd::template shift_right_arithmetic<1>(n);
  const I rest = Simd::sub_int(n, half);
  const I bias = Simd::set1_int(127);
  const F scale1 = Simd::as_float(Simd::template shift_left<23>(Simd::add_int(half, bias)));
  const F scale2 = Simd::as_float(Simd::template shift_left<23>(Simd::add_int(rest, bias)));
  return Simd::mul(Simd::mul(p, scale1), scale2);
}

}  // namespace
}  // namespace pinfer
