// Back from double to a float32 logit, without making an infinity of a finite one.
#pragma once

#include <algorithm>
#include <limits>

namespace pinfer {

// -inf (a masked token) stays.
inline float clamp_logit(double logit) {
  if (logit == -std::numeric_limits<double>::infinity()) return static_cast<float>(logit);
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kMax, kMax));
}

}  // namespace pinfer
