// Philox4x32-10 (Salmon et al., 2011): a counter-based generator. A draw depends on nothing but
// (seed, choice index, output position), so that batching, preemption and restarts do not move it.
#pragma once

#include <cstdint>

namespace pinfer {

// 64 uniform random bits. Key = seed; counter = (position, choice_index, 0, 0).
uint64_t random_bits(uint64_t seed, uint32_t choice_index, uint32_t position);

}  // namespace pinfer
