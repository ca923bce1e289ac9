#include "sampler/exp_weight.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "sampler/cpu_target.h"

namespace pinfer {
namespace {

constexpr size_t kLanes = 4;
// The compiler's portable vectors.
typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(double))));
typedef uint64_t Bits __attribute__((vector_size(kLanes * sizeof(uint64_t))));

constexpr double kLog2E = 1.4426950408889634;
// ln 2 in two parts; the first ends in 21 zero bits, so that its multiples here are exact.
constexpr double kLn2High = 6.93147180369123816490e-01;
constexpr double kLn2Low = 1.90821492927058770002e-10;
// Adding 1.5 * 2^52 (or 2^52 to what is not negative) rounds to an integer: the sum's low bits.
constexpr double kRound = 6755399441055744.0;
constexpr double kRoundPositive = 4503599627370496.0;
constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
constexpr double kSmallestArgument = -700.0;

PINFER_INLINE Doubles all(double value) { return Doubles{} + value; }

// logits[start], ...; beyond the end -inf, whose weight is 0.
PINFER_INLINE Doubles load_logits(const float* logits, size_t num, size_t start) {
  Floats values;
  if (start + kLanes <= num) {
    std::memcpy(&values, logits + start, sizeof(values));
  } else {
    values = Floats{} - std::numeric_limits<float>::infinity();
    for (size_t lane = 0; start + lane < num; ++lane) values[lane] = logits[start + lane];
  }
  return __builtin_convertvector(values, Doubles);
}

PINFER_INLINE Doubles at_least(Doubles x, double low) { return x > all(low) ? x : all(low); }

// exp(x) * 2^scale, in each lane. This file is compiled without contraction to fused multiply-adds,
// which would change bits.
PINFER_INLINE Doubles scaled_exp(Doubles x, uint64_t scale) {
  const Doubles rounded = x * kLog2E + kRound;
  const Doubles k = rounded - kRound;
  const Doubles r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  Doubles p = all(1.0 / 39916800.0);                   // Taylor: 1/11!, 1/10!, ..., 1
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // 2^(k + scale), its exponent put together from the low bits of `rounded`.
  const Bits exponent = reinterpret_cast<Bits>(rounded) + (scale + 1023);
  return p * reinterpret_cast<Doubles>(exponent << 52);
}

PINFER_INLINE void exp_weights_loop(const float* logits, size_t num, double max, double rate,
                                    int64_t* weights) {
  for (size_t i = 0; i < num; i += kLanes) {
    const Doubles x = at_least((load_logits(logits, num, i) - max) * rate, kSmallestExponent);
    const Doubles weight = scaled_exp(x, kWeightBits) + kRoundPositive;
    const Bits integers = reinterpret_cast<Bits>(weight) & kMantissa;
    std::memcpy(weights + i, &integers, std::min(kLanes, num - i) * sizeof(int64_t));
  }
}

// Eight interleaved sums, added in order.
PINFER_INLINE double exp_sum_loop(const float* logits, size_t num, double max) {
  Doubles sums[2] = {};
  for (size_t i = 0; i < num; i += 2 * kLanes) {
    for (size_t part = 0; part < 2; ++part) {
      const Doubles x = load_logits(logits, num, i + part * kLanes) - max;
      sums[part] += scaled_exp(at_least(x, kSmallestArgument), 0);
    }
  }
  double sum = 0.0;
  for (const Doubles& part : sums) {
    for (size_t lane = 0; lane < kLanes; ++lane) sum += part[lane];
  }
  return sum;
}

PINFER_TARGET_AVX2 void exp_weights_avx2(const float* logits, size_t num, double max, double rate,
                                         int64_t* weights) {
  exp_weights_loop(logits, num, max, rate, weights);
}

PINFER_TARGET_AVX2 double exp_sum_avx2(const float* logits, size_t num, double max) {
  return exp_sum_loop(logits, num, max);
}

}  // namespace

double exp_of(double x) { return scaled_exp(all(x), 0)[0]; }

void exp_weights(const float* logits, size_t num, float max_logit, double temperature,
                 int64_t* weights) {
  const double rate = 1.0 / temperature;
  if (has_avx2()) return exp_weights_avx2(logits, num, max_logit, rate, weights);
  exp_weights_loop(logits, num, max_logit, rate, weights);
}

double exp_sum(const float* logits, size_t num, float max_logit) {
  if (has_avx2()) return exp_sum_avx2(logits, num, max_logit);
  return exp_sum_loop(logits, num, max_logit);
}

}  // namespace pinfer
