#include "kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <cassert>

#include "kv_cache/block_hash.h"

namespace pinfer {

KVCacheManager::KVCacheManager(const EngineConfig& config)
    : block_size_(config.block_size),
      max_model_len_(config.max_model_len),
      enable_prefix_caching_(config.enable_prefix_caching),
      reserve_full_isl_(config.scheduler_reserve_full_isl),
      block_pool_(config.num_blocks) {}

ComputedBlocks KVCacheManager::get_computed_blocks(Request& request) const {
  ComputedBlocks computed;
  if (!enable_prefix_caching_) return computed;
  const int32_t max_hits = (request.num_tokens() - 1) / block_size_;
  extend_block_hashes(request, block_size_, max_hits);
  for (int32_t j = 0; j < max_hits; ++j) {
    const auto id = block_pool_.find_cached_block(request.block_hashes[static_cast<size_t>(j)]);
    if (!id) break;
    computed.block_ids.push_back(*id);
  }
  computed.num_tokens = static_cast<int32_t>(computed.block_ids.size()) * block_size_;
  return computed;
}

bool KVCacheManager::allocate_for_admission(Request& request, const ComputedBlocks& computed,
                                            int32_t num_new_tokens, int32_t num_reserved_blocks) {
  assert(request.block_ids.empty());
  const auto num_hits = static_cast<int32_t>(computed.block_ids.size());
  // Found blocks that nobody holds are in the free queue and would leave it.
  const auto num_revived =
      static_cast<int32_t>(std::count_if(computed.block_ids.begin(), computed.block_ids.end(),
                                         [&](int32_t id) { return block_pool_.is_free(id); }));
  const int32_t num_available =
      block_pool_.num_free_blocks() - num_reserved_blocks - num_revived + num_hits;
  if (reserve_full_isl_ &&
      num_blocks_for(std::min(request.num_tokens(), max_model_len_)) > num_available) {
    return false;
  }
  const int32_t num_tokens = computed.num_tokens + num_new_tokens;
  if (num_blocks_for(num_tokens) > num_available) return false;

  for (const int32_t id : computed.block_ids) block_pool_.touch(id);
  request.block_ids = computed.block_ids;
  request.num_registered_blocks = num_hits;
  block_pool_.allocate(num_blocks_for(num_tokens) - num_hits, request.block_ids);
  register_full_blocks(request, num_tokens);
  prefix_cache_stats_.num_queried_tokens += enable_prefix_caching_ ? request.num_tokens() : 0;
  prefix_cache_stats_.num_hit_tokens += computed.num_tokens;
  return true;
}

bool KVCacheManager::allocate_for_running(Request& request, int32_t num_new_tokens) {
  const int32_t num_tokens = request.num_computed_tokens + num_new_tokens;
  const int32_t num_missing =
      num_blocks_for(num_tokens) - static_cast<int32_t>(request.block_ids.size());
  if (num_missing > block_pool_.num_free_blocks()) return false;
  block_pool_.allocate(num_missing, request.block_ids);
  register_full_blocks(request, num_tokens);
  return true;
}

void KVCacheManager::free(Request& request) {
  std::reverse(request.block_ids.begin(), request.block_ids.end());
  block_pool_.free(request.block_ids);
  request.block_ids.clear();
  request.num_registered_blocks = 0;
}

void KVCacheManager::drop_keys(const Request& request, int32_t first_block) {
  for (size_t j = static_cast<size_t>(first_block); j < request.block_ids.size(); ++j) {
    block_pool_.drop_key(request.block_ids[j]);
  }
}

// A block gets its key when its last token is scheduled, before the model has run: a request
// admitted later in the same step may use it, for a layer writes all rows before any row attends.
void KVCacheManager::register_full_blocks(Request& request, int32_t num_tokens) {
  if (!enable_prefix_caching_) return;
  const int32_t num_full = num_tokens / block_size_;
  if (num_full <= request.num_registered_blocks) return;
  extend_block_hashes(request, block_size_, num_full);
  for (int32_t j = request.num_registered_blocks; j < num_full; ++j) {
    const auto index = static_cast<size_t>(j);
    block_pool_.register_block(request.block_ids[index], request.block_hashes[index]);
  }
  request.num_registered_blocks = num_full;
}

}  // namespace pinfer
