// How many cache blocks an engine gets when nobody says it.
#pragma once

#include <cstdint>

#include "core/engine_config.h"
#include "core/kv_cache_config.h"
#include "core/status.h"

namespace pinfer {

// Memory that this process may still use, in bytes: what the system says is available, or what its
// cgroups (v1 or v2, the tightest on the path) leave, the smaller.
int64_t available_memory();

// Fills in max_model_len (from the model's own limit) where it is 0. INVALID_ARGUMENT for one
// beyond the model's.
Status resolve_max_model_len(int32_t model_max_len, EngineConfig* config);

// Fills in num_blocks where it is 0, and checks it against max_model_len. The default for
// num_blocks: enough for max_num_seqs requests of max_model_len, or a quarter of the available
// memory, the smaller of the two, but at least one request. A request counts the blocks that it
// holds at once: of layers with a sliding window those of the window and of one step.
// INVALID_ARGUMENT with both numbers and the flags for a pool that cannot hold one request of
// max_model_len. REQUIRES: max_model_len is known.
Status resolve_cache_size(const KVCacheConfig& kv_cache_config, int64_t bytes_per_block,
                          int64_t available_bytes, EngineConfig* config);

// The same on a device with cache_bytes left for the cache. The default for num_blocks: all that
// fit there. INVALID_ARGUMENT as above, and RESOURCE_EXHAUSTED with the numbers where what fits
// does not hold one request.
Status resolve_device_cache_size(const KVCacheConfig& kv_cache_config, int64_t bytes_per_block,
                                 int64_t cache_bytes, EngineConfig* config);

}  // namespace pinfer
