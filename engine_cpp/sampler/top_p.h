// top_p: the fewest of the most likely tokens whose probabilities reach top_p.
#pragma once

#include <cstdint>
#include <vector>

#include "sampler/candidates.h"

namespace pinfer {

// Memory to reuse between calls.
using TopPScratch = std::vector<uint64_t>;

// A token stays if the tokens before it (greater logit, or equal logit and lower id) together have
// less than top_p of the probability; so at least one stays. REQUIRES: 0 < top_p < 1.
void apply_top_p(double top_p, Candidates& candidates, TopPScratch& scratch);

}  // namespace pinfer
