// min_p: tokens at least min_p times as likely as the best one.
#pragma once

#include "sampler/candidates.h"

namespace pinfer {

// REQUIRES: 0 <= min_p <= 1. The best token always stays.
void apply_min_p(double min_p, Candidates& candidates);

}  // namespace pinfer
