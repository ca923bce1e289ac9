// What experts need beside linear layers, for one instruction set. Included after one simd_*.h and
// vector_exp, vector_tanh and vector_erf over it: an activation is then the same number here as in
// generated code, which calls the same functions. See panel_tile.h for what may not be included.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels.h"

namespace pinfer {
namespace {

// A vector of which `count` lanes count; the others are `fill`.
inline Simd::F load_some(const float* p, int64_t count, float fill) {
  if (count >= Simd::kLanes) return Simd::load(p);
  float lanes[Simd::kLanes];
  for (int i = 0; i < Simd::kLanes; ++i) lanes[i] = i < count ? p[i] : fill;
  return Simd::load(lanes);
}

inline void store_some(float* p, int64_t count, Simd::F x) {
  if (count >= Simd::kLanes) return Simd::store(p, x);
  float lanes[Simd::kLanes];
  Simd::store(lanes, x);
  for (int64_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// The order of operations is that of generated code.
inline Simd::F silu(Simd::F x) {
  const Simd::F exp = vector_exp(Simd::sub(Simd::zero(), x));
  return Simd::div(x, Simd::add(exp, Simd::set1(1.0f)));
}

inline Simd::F gelu(Simd::F x) {
  const Simd::F erf = vector_erf(Simd::mul(x, Simd::set1(0.70710678118654752440f)));
  return Simd::mul(Simd::mul(x, Simd::set1(0.5f)), Simd::add(Simd::set1(1.0f), erf));
}

inline Simd::F gelu_tanh(Simd::F x) {
  const Simd::F cube = Simd::mul(Simd::mul(x, x), x);
  const Simd::F sum = Simd::add(x, Simd::mul(Simd::set1(0.044715f), cube));
  const Simd::F tanh = vector_tanh(Simd::mul(Simd::set1(0.79788456080286535588f), sum));
  return Simd::mul(Simd::mul(Simd::set1(0.5f), x), Simd::add(Simd::set1(1.0f), tanh));
}

template <Simd::F (*activation)(Simd::F)>
void gate_row(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += Simd::kLanes) {
    const Simd::F active = activation(load_some(gate + i, n - i, 0.0f));
    store_some(out + i, n - i, Simd::mul(active, load_some(up + i, n - i, 0.0f)));
  }
}

void softmax_row(const float* logits, int64_t n, float* out) {
  float largest = logits[0];
  for (int64_t i = 1; i < n; ++i) largest = logits[i] > largest ? logits[i] : largest;
  Simd::F sums = Simd::zero();
  for (int64_t i = 0; i < n; i += Simd::kLanes) {
    const Simd::F x = load_some(logits + i, n - i, -__builtin_inff());
    const Simd::F exp = vector_exp(Simd::sub(x, Simd::set1(largest)));
    sums = Simd::add(sums, exp);
    store_some(out + i, n - i, exp);
  }
  const Simd::F sum = Simd::set1(Simd::reduce_add(sums));
  for (int64_t i = 0; i < n; i += Simd::kLanes) {
    store_some(out + i, n - i, Simd::div(load_some(out + i, n - i, 0.0f), sum));
  }
}

void accumulate_row(float weight, const float* row, int64_t n, float* sum) {
  const Simd::F weights = Simd::set1(weight);
  for (int64_t i = 0; i < n; i += Simd::kLanes) {
    const Simd::F values = load_some(row + i, n - i, 0.0f);
    store_some(sum + i, n - i, Simd::fma(weights, values, load_some(sum + i, n - i, 0.0f)));
  }
}

constexpr MoeKernel kMoe = {
    softmax_row, {gate_row<silu>, gate_row<gelu>, gate_row<gelu_tanh>}, accumulate_row};

}  // namespace
}  // namespace pinfer
