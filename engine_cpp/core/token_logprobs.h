// Log-probabilities at one position: of the token that stands there, and of the best ones.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace pinfer {

struct TokenLogprobs {
  double chosen = 0.0;                          // may be -inf
  std::vector<std::pair<int32_t, double>> top;  // best first; equal ones by ascending id
};

}  // namespace pinfer
