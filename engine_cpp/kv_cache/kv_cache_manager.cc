#include "kv_cache/kv_cache_manager.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "kv_cache/block_hash.h"

namespace pinfer {

KVCacheManager::KVCacheManager(const EngineConfig& config, KVCacheConfig kv_cache_config)
    : kv_cache_config_(std::move(kv_cache_config)),
      kinds_(find_kinds(kv_cache_config_)),
      block_size_(kv_cache_config_.block_size()),
      max_model_len_(config.max_model_len),
      max_num_batched_tokens_(config.max_num_batched_tokens),
      enable_prefix_caching_(config.enable_prefix_caching),
      reserve_full_isl_(config.scheduler_reserve_full_isl),
      block_pool_(config.num_blocks, num_groups()) {
  assert(block_size_ == config.block_size);
}

KVCacheManager::KVCacheManager(const EngineConfig& config)
    : KVCacheManager(config, uniform_kv_cache_config(1, config.block_size)) {}

std::vector<KVCacheManager::Kind> KVCacheManager::find_kinds(const KVCacheConfig& config) {
  std::vector<Kind> kinds;
  for (int32_t g = 0; g < config.num_groups(); ++g) {
    const KVCacheSpec& spec = config.groups[static_cast<size_t>(g)].spec;
    if (kinds.empty() || !(kinds.back().spec == spec)) kinds.push_back({spec, g, g});
    kinds.back().end_group = g + 1;
  }
  return kinds;
}

// Each kind shortens what the one before it has found, until none does. For a kind with full
// attention every shorter prefix is cached too; a window asks for other blocks at each length.
ComputedBlocks KVCacheManager::get_computed_blocks(Request& request) const {
  ComputedBlocks computed;
  computed.block_ids.resize(static_cast<size_t>(num_groups()));
  if (!enable_prefix_caching_ || request.skips_prefix_cache()) return computed;
  const int32_t max_hits = (request.num_tokens() - 1) / block_size_;
  extend_block_hashes(request, block_size_, max_hits);
  auto hashes = std::span(request.block_hashes).first(static_cast<size_t>(max_hits));
  size_t num_agreeing = 0;
  for (size_t k = 0; num_agreeing < kinds_.size(); k = (k + 1) % kinds_.size()) {
    const size_t num_hits = find(kinds_[k], hashes, computed.block_ids);
    num_agreeing = num_hits == hashes.size() ? num_agreeing + 1 : 1;
    hashes = hashes.first(num_hits);
  }
  computed.num_tokens = static_cast<int32_t>(hashes.size()) * block_size_;
  return computed;
}

size_t KVCacheManager::find(const Kind& kind, std::span<const BlockHash> hashes,
                            BlockIds& block_ids) const {
  return kind.spec.sliding_window == 0 ? find_from_start(kind, hashes, block_ids)
                                       : find_window(kind, hashes, block_ids);
}

size_t KVCacheManager::find_from_start(const Kind& kind, std::span<const BlockHash> hashes,
                                       BlockIds& block_ids) const {
  const size_t num_known = block_ids[static_cast<size_t>(kind.first_group)].size();
  if (num_known >= hashes.size()) {  // of an earlier round
    resize_tables(kind, hashes.size(), block_ids);
    return hashes.size();
  }
  for (int32_t g = kind.first_group; g < kind.end_group; ++g) {
    std::vector<int32_t>& table = block_ids[static_cast<size_t>(g)];
    for (const BlockHash& hash : hashes) {
      const auto id = block_pool_.find_cached_block(hash, g);
      if (!id) break;
      table.push_back(*id);
    }
    hashes = hashes.first(table.size());
  }
  resize_tables(kind, hashes.size(), block_ids);
  return hashes.size();
}

// The last block border with a whole window of cached blocks before it, or with cached blocks only.
size_t KVCacheManager::find_window(const Kind& kind, std::span<const BlockHash> hashes,
                                   BlockIds& block_ids) const {
  const int32_t num_wanted = kind.spec.num_window_blocks();
  int32_t num_found = 0;
  size_t num_hits = hashes.size();
  resize_tables(kind, 0, block_ids);
  resize_tables(kind, num_hits, block_ids);
  for (size_t j = hashes.size(); j > 0 && num_found < num_wanted; --j) {
    if (find_block(kind, hashes[j - 1], j - 1, block_ids)) {
      ++num_found;
    } else {  // what was found behind the gap is of no use
      num_hits = j - 1;
      num_found = 0;
    }
  }
  resize_tables(kind, num_hits, block_ids);
  return num_hits;
}

void KVCacheManager::resize_tables(const Kind& kind, size_t num_blocks, BlockIds& block_ids) {
  for (int32_t g = kind.first_group; g < kind.end_group; ++g) {
    block_ids[static_cast<size_t>(g)].resize(num_blocks, BlockPool::kNullBlockId);
  }
}

// False if any group of the kind lacks it; then the tables' entries mean nothing.
bool KVCacheManager::find_block(const Kind& kind, const BlockHash& hash, size_t index,
                                BlockIds& block_ids) const {
  for (int32_t g = kind.first_group; g < kind.end_group; ++g) {
    const auto id = block_pool_.find_cached_block(hash, g);
    if (!id) return false;
    block_ids[static_cast<size_t>(g)][index] = *id;
  }
  return true;
}

bool KVCacheManager::allocate_for_admission(Request& request, const ComputedBlocks& computed,
                                            int32_t num_new_tokens, int32_t num_reserved_blocks) {
  assert(request.block_ids.empty());
  if (num_needed_for_admission(request, computed, num_new_tokens) + num_reserved_blocks >
      block_pool_.num_free_blocks()) {
    return false;
  }
  // All found blocks are held before any block is allocated: that could take one of them.
  for (const std::vector<int32_t>& table : computed.block_ids) {
    for (const int32_t id : table) {
      if (id != BlockPool::kNullBlockId) block_pool_.touch(id);
    }
  }
  request.block_ids = computed.block_ids;
  request.num_registered_blocks = computed.num_tokens / block_size_;
  const int32_t num_tokens = computed.num_tokens + num_new_tokens;
  allocate(num_blocks_for(num_tokens) - request.num_registered_blocks, request);
  register_full_blocks(request, num_tokens);
  prefix_cache_stats_.num_queried_tokens += enable_prefix_caching_ ? request.num_tokens() : 0;
  prefix_cache_stats_.num_hit_tokens += computed.num_tokens;
  return true;
}

// Free blocks that go to the request: now, or with reserve_full_isl at any time until its known
// tokens are computed.
int64_t KVCacheManager::num_needed_for_admission(const Request& request,
                                                 const ComputedBlocks& computed,
                                                 int32_t num_new_tokens) const {
  const int32_t num_hits = computed.num_tokens / block_size_;
  const int32_t num_missing = num_blocks_for(computed.num_tokens + num_new_tokens) - num_hits;
  const int32_t num_whole = std::min(request.num_tokens(), max_model_len_);
  int64_t num_needed = 0;
  for (int32_t g = 0; g < num_groups(); ++g) {
    const std::vector<int32_t>& table = computed.block_ids[static_cast<size_t>(g)];
    // Found blocks that nobody holds are in the free queue and would leave it.
    const auto num_revived = static_cast<int32_t>(std::count_if(
        table.begin(), table.end(), [&](int32_t id) { return block_pool_.is_free(id); }));
    int32_t num_needed_by_group = num_missing + num_revived;
    if (reserve_full_isl_) {
      // Blocks that leave the window, found ones too, come back for those that enter it.
      num_needed_by_group =
          std::max(num_needed_by_group,
                   std::min(num_blocks_for(num_whole) - num_hits + num_revived,
                            spec(g).max_blocks_held(num_whole, max_num_batched_tokens_)));
    }
    num_needed += num_needed_by_group;
  }
  return num_needed;
}

bool KVCacheManager::allocate_for_running(Request& request, int32_t num_new_tokens) {
  free_skipped_blocks(request);
  const int32_t num_tokens = request.num_computed_tokens + num_new_tokens;
  const int32_t num_missing =
      num_blocks_for(num_tokens) - static_cast<int32_t>(request.block_ids.front().size());
  if (int64_t{num_missing} * num_groups() > block_pool_.num_free_blocks()) return false;
  allocate(num_missing, request);
  register_full_blocks(request, num_tokens);
  return true;
}

void KVCacheManager::allocate(int32_t num_missing, Request& request) {
  for (std::vector<int32_t>& table : request.block_ids) block_pool_.allocate(num_missing, table);
}

void KVCacheManager::free(Request& request) {
  for (std::vector<int32_t>& table : request.block_ids) {
    std::reverse(table.begin(), table.end());
    block_pool_.free(table);
  }
  request.block_ids.clear();
  request.num_registered_blocks = 0;
}

void KVCacheManager::drop_keys(const Request& request, int32_t first_block) {
  const std::vector<int32_t> lost(request.block_hashes.size(), BlockPool::kNullBlockId);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const bool is_held = !request.block_ids.empty();
    const std::vector<int32_t>& table = is_held ? request.block_ids[static_cast<size_t>(g)] : lost;
    for (size_t j = static_cast<size_t>(first_block); j < table.size(); ++j) {
      if (table[j] != BlockPool::kNullBlockId) {
        block_pool_.drop_key(table[j]);
      } else if (j < request.block_hashes.size()) {
        block_pool_.drop_keys(request.block_hashes[j], g);
      }
    }
  }
}

void KVCacheManager::free_skipped_blocks(Request& request) {
  std::vector<int32_t> skipped;  // last first
  for (int32_t g = 0; g < num_groups(); ++g) {
    std::vector<int32_t>& table = request.block_ids[static_cast<size_t>(g)];
    skipped.clear();
    for (int32_t j = spec(g).num_skipped_blocks(request.num_computed_tokens); j > 0; --j) {
      int32_t& id = table[static_cast<size_t>(j - 1)];
      if (id == BlockPool::kNullBlockId) break;  // so are those before it
      skipped.push_back(id);
      id = BlockPool::kNullBlockId;
    }
    block_pool_.free(skipped);
  }
}

// A block gets its key when its last token is scheduled, before the model has run: a request
// admitted later in the same step may use it, for a layer writes all rows before any row attends.
// One whose last token is still being sampled gets it when that is known.
void KVCacheManager::register_full_blocks(Request& request, int32_t num_tokens) {
  if (!enable_prefix_caching_) return;
  const int32_t num_full = std::min(num_tokens, request.num_tokens()) / block_size_;
  if (num_full <= request.num_registered_blocks) return;
  extend_block_hashes(request, block_size_, num_full);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const std::vector<int32_t>& table = request.block_ids[static_cast<size_t>(g)];
    for (int32_t j = request.num_registered_blocks; j < num_full; ++j) {
      const auto index = static_cast<size_t>(j);
      block_pool_.register_block(table[index], request.block_hashes[index], g);
    }
  }
  request.num_registered_blocks = num_full;
}

}  // namespace pinfer
