// Gives requests the cache blocks for the tokens they are about to compute, and finds blocks that
// already hold a request's first tokens: for every group of layers, or for none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine_config.h"
#include "core/kv_cache_config.h"
#include "core/request.h"
#include "kv_cache/block_pool.h"

namespace pinfer {

// Leading blocks of a request that the prefix cache holds.
struct ComputedBlocks {
  // By group, equally long; the null block where no later token attends.
  std::vector<std::vector<int32_t>> block_ids;
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
  KVCacheManager(const EngineConfig& config, KVCacheConfig kv_cache_config);
  // One group with full attention.
  explicit KVCacheManager(const EngineConfig& config);

  // The longest prefix that is cached for every group, at most num_tokens() - 1 tokens: one token
  // is always computed. Changes nothing but request.block_hashes.
  ComputedBlocks get_computed_blocks(Request& request) const;

  // Blocks of all groups for a request that enters: the found ones, then new ones for
  // num_new_tokens more. False, and nothing done, if the free blocks are too few;
  // num_reserved_blocks of them are out of bounds. REQUIRES: the request holds no blocks, and has
  // so many tokens.
  bool allocate_for_admission(Request& request, const ComputedBlocks& computed,
                              int32_t num_new_tokens, int32_t num_reserved_blocks);

  // Blocks for num_new_tokens after request.num_computed_tokens of a running request, or false.
  // Blocks that have left the sliding window are freed first; the null block takes their place.
  // REQUIRES: the request has so many tokens, placeholders included.
  bool allocate_for_running(Request& request, int32_t num_new_tokens);

  // Gives their keys to the request's blocks that are full with its first num_tokens tokens, as far
  // as these are known. REQUIRES: it holds blocks for them.
  void register_full_blocks(Request& request, int32_t num_tokens);

  // Frees the request's blocks, last first, so that a chain is evicted from its end.
  void free(Request& request);

  // Takes the keys of the request's blocks from first_block on: their content is not to be trusted.
  // Of blocks that have left a window too, or that it has lost, and of those with the same keys.
  void drop_keys(const Request& request, int32_t first_block);

  // The most blocks that a request of num_tokens tokens holds at once.
  int64_t max_blocks_held(int64_t num_tokens) const {
    return kv_cache_config_.max_blocks_held(num_tokens, max_num_batched_tokens_);
  }
  // The longest request, up to limit tokens, for which the pool has enough blocks.
  int64_t max_tokens_held(int64_t limit) const {
    return kv_cache_config_.max_tokens_held(block_pool_.num_usable_blocks(), limit,
                                            max_num_batched_tokens_);
  }

  BlockPool& block_pool() { return block_pool_; }
  const BlockPool& block_pool() const { return block_pool_; }
  const PrefixCacheStats& prefix_cache_stats() const { return prefix_cache_stats_; }

 private:
  using BlockIds = std::vector<std::vector<int32_t>>;  // by group

  // Groups of one kind: their look-ups end alike.
  struct Kind {
    KVCacheSpec spec;
    int32_t first_group = 0;
    int32_t end_group = 0;
  };

  static std::vector<Kind> find_kinds(const KVCacheConfig& config);
  static void resize_tables(const Kind& kind, size_t num_blocks, BlockIds& block_ids);
  // How many blocks of the prefix the kind's groups can go on from; their table of it.
  size_t find(const Kind& kind, std::span<const BlockHash> hashes, BlockIds& block_ids) const;
  size_t find_from_start(const Kind& kind, std::span<const BlockHash> hashes,
                         BlockIds& block_ids) const;
  size_t find_window(const Kind& kind, std::span<const BlockHash> hashes,
                     BlockIds& block_ids) const;
  bool find_block(const Kind& kind, const BlockHash& hash, size_t index, BlockIds& block_ids) const;
  int64_t num_needed_for_admission(const Request& request, const ComputedBlocks& computed,
                                   int32_t num_new_tokens) const;
  int32_t num_groups() const { return kv_cache_config_.num_groups(); }
  const KVCacheSpec& spec(int32_t group_id) const {
    return kv_cache_config_.groups[static_cast<size_t>(group_id)].spec;
  }
  int32_t num_blocks_for(int64_t num_tokens) const { return spec(0).num_blocks_for(num_tokens); }
  void allocate(int32_t num_missing, Request& request);
  void free_skipped_blocks(Request& request);

  const KVCacheConfig kv_cache_config_;
  const std::vector<Kind> kinds_;
  const int32_t block_size_;
  const int32_t max_model_len_;
  const int32_t max_num_batched_tokens_;
  const bool enable_prefix_caching_;
  const bool reserve_full_isl_;
  BlockPool block_pool_;
  PrefixCacheStats prefix_cache_stats_;
};

}  // namespace pinfer
