// Weights that waiting threads fetch: while one thread runs what is serial between two linear
// layers, the workers of the pool read the beginning of their share of the next weight into their
// second level caches.
#pragma once

#include <cstdint>

#include "csrc/packed_weight.h"

namespace pinfer {

// Called before few rows are multiplied with a weight of n outputs and k inputs: workers that have
// done their part of it go on with the weight that followed it the last time. A wrong guess costs
// nothing but bandwidth. The order is kept for each calling thread.
void read_ahead(const PackedWeight& weight, int64_t n, int64_t k);

}  // namespace pinfer
