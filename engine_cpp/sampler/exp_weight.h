// Unnormalised probabilities as integers: weight(x) = round(2^40 * exp(x)) for x <= 0.
//
// Sums of integers do not depend on their order, so the filters may look at tokens in any order;
// and the Python twin, which does the same IEEE operations in the same order for each element, gets
// the same weights to the bit. No library's exp is used: its last bits change with libc and CPU. A
// token more than 2^41 times less likely than the best one has weight 0 and is never chosen.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinfer {

inline constexpr int kWeightBits = 40;
inline constexpr double kSmallestExponent = -28.5;  // exp of it is below 2^-41: weight 0

// exp(x) with a relative error below 1e-14, for x in [-700, 0].
double exp_of(double x);

// weights[i] = weight((logits[i] - max_logit) * (1 / temperature)).
// REQUIRES: logits[i] <= max_logit (-inf too), temperature > 0.
void exp_weights(const float* logits, size_t num, float max_logit, double temperature,
                 int64_t* weights);

// The sum of exp(logits[i] - max_logit), for log-softmax.
double exp_sum(const float* logits, size_t num, float max_logit);

}  // namespace pinfer
