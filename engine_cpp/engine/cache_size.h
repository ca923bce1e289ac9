// How many cache blocks an engine gets when nobody says it.
#pragma once

#include <cstdint>

#include "core/engine_config.h"
#include "core/status.h"

namespace pinfer {

// Memory that this process may still use, in bytes: what the system says is available, or what its
// cgroups (v1 or v2, the tightest on the path) leave, the smaller.
int64_t available_memory();

// Fills in max_model_len (from the model's own limit) and num_blocks where they are 0, and checks
// them against each other. The default for num_blocks: enough for max_num_seqs requests of
// max_model_len, or a quarter of the available memory, the smaller of the two, but at least one
// request. INVALID_ARGUMENT with both numbers and the flags for a pool that cannot hold one
// request of max_model_len, or a max_model_len beyond the model's.
Status resolve_cache_size(int32_t model_max_len, int64_t bytes_per_block, int64_t available_bytes,
                          EngineConfig* config);

}  // namespace pinfer
