// Gives requests the cache blocks for the tokens they are about to compute, and finds blocks that
// already hold a request's first tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine_config.h"
#include "core/request.h"
#include "kv_cache/block_pool.h"
#include "kv_cache/kv_cache_spec.h"

namespace pinfer {

// Leading blocks of a request that the prefix cache holds.
struct ComputedBlocks {
  std::vector<int32_t> block_ids;  // the null block where no later token attends
  int32_t num_tokens = 0;
};

struct PrefixCacheStats {
  int64_t num_queried_tokens = 0;  // tokens of admitted requests
  int64_t num_hit_tokens = 0;      // of these, found in the cache
};

// Not thread-safe: it belongs to the thread that drives the scheduler. It keeps nothing about a
// request but what it writes into it (block_ids, block_hashes, num_registered_blocks).
class KVCacheManager {
 public:
  // REQUIRES: config is valid, max_model_len and num_blocks are known (not 0).
  explicit KVCacheManager(const EngineConfig& config, int32_t sliding_window = 0);

  // The longest cached prefix, at most num_tokens() - 1 tokens: one token is always computed.
  // Changes nothing but request.block_hashes.
  ComputedBlocks get_computed_blocks(Request& request) const;

  // Blocks for a request that enters: the found ones, then new ones for num_new_tokens more.
  // False, and nothing done, if the free blocks are too few; num_reserved_blocks of them are out
  // of bounds. REQUIRES: the request holds no blocks, and has so many tokens.
  bool allocate_for_admission(Request& request, const ComputedBlocks& computed,
                              int32_t num_new_tokens, int32_t num_reserved_blocks);

  // Blocks for num_new_tokens after request.num_computed_tokens of a running request, or false.
  // Blocks that have left the sliding window are freed first; the null block takes their place.
  // REQUIRES: the request has so many tokens.
  bool allocate_for_running(Request& request, int32_t num_new_tokens);

  // Frees the request's blocks, last first, so that a chain is evicted from its end.
  void free(Request& request);

  // Takes the keys of the request's blocks from first_block on: their content is not to be trusted.
  void drop_keys(const Request& request, int32_t first_block);

  // The most blocks that a request of num_tokens tokens holds at once.
  int32_t max_blocks_held(int64_t num_tokens) const {
    return spec_.max_blocks_held(num_tokens, max_num_batched_tokens_);
  }

  BlockPool& block_pool() { return block_pool_; }
  const BlockPool& block_pool() const { return block_pool_; }
  const PrefixCacheStats& prefix_cache_stats() const { return prefix_cache_stats_; }

 private:
  void find_from_start(std::span<const BlockHash> hashes, std::vector<int32_t>& block_ids) const;
  void find_window(std::span<const BlockHash> hashes, std::vector<int32_t>& block_ids) const;
  void free_skipped_blocks(Request& request);
  void register_full_blocks(Request& request, int32_t num_tokens);

  const KVCacheSpec spec_;
  const int32_t max_model_len_;
  const int32_t max_num_batched_tokens_;
  const bool enable_prefix_caching_;
  const bool reserve_full_isl_;
  BlockPool block_pool_;
  PrefixCacheStats prefix_cache_stats_;
};

}  // namespace pinfer
