#include "kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <cassert>

#include "kv_cache/block_hash.h"

namespace pinfer {

KVCacheManager::KVCacheManager(const EngineConfig& config, int32_t sliding_window)
    : spec_{.block_size = config.block_size, .sliding_window = sliding_window},
      max_model_len_(config.max_model_len),
      max_num_batched_tokens_(config.max_num_batched_tokens),
      enable_prefix_caching_(config.enable_prefix_caching),
      reserve_full_isl_(config.scheduler_reserve_full_isl),
      block_pool_(config.num_blocks) {}

ComputedBlocks KVCacheManager::get_computed_blocks(Request& request) const {
  ComputedBlocks computed;
  if (!enable_prefix_caching_ || request.skips_prefix_cache()) return computed;
  const int32_t max_hits = (request.num_tokens() - 1) / spec_.block_size;
  extend_block_hashes(request, spec_.block_size, max_hits);
  const auto hashes = std::span(request.block_hashes).first(static_cast<size_t>(max_hits));
  if (spec_.sliding_window == 0) {
    find_from_start(hashes, computed.block_ids);
  } else {
    find_window(hashes, computed.block_ids);
  }
  computed.num_tokens = static_cast<int32_t>(computed.block_ids.size()) * spec_.block_size;
  return computed;
}

void KVCacheManager::find_from_start(std::span<const BlockHash> hashes,
                                     std::vector<int32_t>& block_ids) const {
  for (const BlockHash& hash : hashes) {
    const auto id = block_pool_.find_cached_block(hash);
    if (!id) return;
    block_ids.push_back(*id);
  }
}

// The last block border with a whole window of cached blocks before it, or with cached blocks only.
void KVCacheManager::find_window(std::span<const BlockHash> hashes,
                                 std::vector<int32_t>& block_ids) const {
  const int32_t num_wanted = spec_.num_window_blocks();
  int32_t num_found = 0;
  block_ids.assign(hashes.size(), BlockPool::kNullBlockId);
  for (size_t j = hashes.size(); j > 0 && num_found < num_wanted; --j) {
    if (const auto id = block_pool_.find_cached_block(hashes[j - 1])) {
      block_ids[j - 1] = *id;
      ++num_found;
    } else {  // what was found behind the gap is of no use
      block_ids.resize(j - 1);
      num_found = 0;
    }
  }
}

bool KVCacheManager::allocate_for_admission(Request& request, const ComputedBlocks& computed,
                                            int32_t num_new_tokens, int32_t num_reserved_blocks) {
  assert(request.block_ids.empty());
  const auto num_hits = static_cast<int32_t>(computed.block_ids.size());
  const int32_t num_tokens = computed.num_tokens + num_new_tokens;
  const int32_t num_missing = spec_.num_blocks_for(num_tokens) - num_hits;
  int32_t num_needed = num_missing;
  if (reserve_full_isl_) {
    const int32_t num_whole = std::min(request.num_tokens(), max_model_len_);
    num_needed = std::max(num_needed, std::min(spec_.num_blocks_for(num_whole) - num_hits,
                                               max_blocks_held(num_whole)));
  }
  // Found blocks that nobody holds are in the free queue and would leave it.
  const auto num_revived =
      static_cast<int32_t>(std::count_if(computed.block_ids.begin(), computed.block_ids.end(),
                                         [&](int32_t id) { return block_pool_.is_free(id); }));
  if (num_needed + num_revived + num_reserved_blocks > block_pool_.num_free_blocks()) return false;

  for (const int32_t id : computed.block_ids) {
    if (id != BlockPool::kNullBlockId) block_pool_.touch(id);
  }
  request.block_ids = computed.block_ids;
  request.num_registered_blocks = num_hits;
  block_pool_.allocate(num_missing, request.block_ids);
  register_full_blocks(request, num_tokens);
  prefix_cache_stats_.num_queried_tokens += enable_prefix_caching_ ? request.num_tokens() : 0;
  prefix_cache_stats_.num_hit_tokens += computed.num_tokens;
  return true;
}

bool KVCacheManager::allocate_for_running(Request& request, int32_t num_new_tokens) {
  free_skipped_blocks(request);
  const int32_t num_tokens = request.num_computed_tokens + num_new_tokens;
  const int32_t num_missing =
      spec_.num_blocks_for(num_tokens) - static_cast<int32_t>(request.block_ids.size());
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

void KVCacheManager::free_skipped_blocks(Request& request) {
  std::vector<int32_t> skipped;  // last first
  for (int32_t j = spec_.num_skipped_blocks(request.num_computed_tokens); j > 0; --j) {
    int32_t& id = request.block_ids[static_cast<size_t>(j - 1)];
    if (id == BlockPool::kNullBlockId) break;  // so are those before it
    skipped.push_back(id);
    id = BlockPool::kNullBlockId;
  }
  block_pool_.free(skipped);
}

// A block gets its key when its last token is scheduled, before the model has run: a request
// admitted later in the same step may use it, for a layer writes all rows before any row attends.
void KVCacheManager::register_full_blocks(Request& request, int32_t num_tokens) {
  if (!enable_prefix_caching_) return;
  const int32_t num_full = num_tokens / spec_.block_size;
  if (num_full <= request.num_registered_blocks) return;
  extend_block_hashes(request, spec_.block_size, num_full);
  for (int32_t j = request.num_registered_blocks; j < num_full; ++j) {
    const auto index = static_cast<size_t>(j);
    block_pool_.register_block(request.block_ids[index], request.block_hashes[index]);
  }
  request.num_registered_blocks = num_full;
}

}  // namespace pinfer
