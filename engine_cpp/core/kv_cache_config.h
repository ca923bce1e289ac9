// Which layers share block tables and cache memory.
//
// Layers of one kind (one KVCacheSpec) form a group, or several of about the same size. A request
// has one block table for each group, and all groups draw their blocks from one pool: a block is as
// large as num_tensors() layers need, whichever group holds it. So a group whose layers have a
// sliding window gives back blocks that any other group may take. Where a group has fewer layers
// than another, the rest of its blocks is padding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/kv_cache_spec.h"

namespace pinfer {

struct KVCacheGroup {
  KVCacheSpec spec;
  std::vector<int32_t> layers;  // ascending
};

// Where a layer's keys and values are: its group's table names the blocks, in this pair of tensors.
struct KVCachePlace {
  int32_t group_id = 0;
  int32_t tensor_id = 0;
};

// A plain value, made by make_kv_cache_config.
struct KVCacheConfig {
  // At least one. Groups of one kind stand together; full attention comes first, then the windows,
  // ascending.
  std::vector<KVCacheGroup> groups;

  int32_t num_groups() const { return static_cast<int32_t>(groups.size()); }
  int32_t block_size() const { return groups.front().spec.block_size; }  // of every group
  // Pairs of tensors, K and V: as many as the largest group has layers.
  int32_t num_tensors() const;
  // By layer.
  std::vector<KVCachePlace> places() const;

  // The most blocks that a request of num_tokens tokens holds at once, over all groups, if a step
  // computes at most max_tokens_per_step of them.
  int64_t max_blocks_held(int64_t num_tokens, int32_t max_tokens_per_step) const;
  // The longest request, up to limit tokens, that never holds more than num_blocks.
  int64_t max_tokens_held(int64_t num_blocks, int64_t limit, int32_t max_tokens_per_step) const;
};

// One group: every layer alike.
KVCacheConfig uniform_kv_cache_config(int32_t num_layers, int32_t block_size,
                                      int32_t sliding_window = 0);

// layer_windows: by layer, the tokens that a token attends to, itself included; 0 = all. A window
// that no request of max_model_len outgrows counts as none.
//
// Layers of a kind are dealt out to as many groups as they need at one size for all kinds. That
// size is the one with the fewest groups, then the least padding, among those that pad full
// attention by no more than a twelfth of its layers (it is paid for the whole length of requests),
// other kinds by no more than a sixth. REQUIRES: at least one layer.
KVCacheConfig make_kv_cache_config(std::span<const int32_t> layer_windows, int32_t block_size,
                                   int32_t max_model_len);

}  // namespace pinfer
