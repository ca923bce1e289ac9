#include "sampler/min_p.h"

#include <cmath>

#include "sampler/exp_weight.h"

namespace pinfer {

void apply_min_p(double min_p, Candidates& candidates) {
  const auto least = static_cast<int64_t>(std::ceil(std::ldexp(min_p, kWeightBits)));
  candidates.keep_if([&](size_t i) { return candidates.weights[i] >= least; });
}

}  // namespace pinfer
