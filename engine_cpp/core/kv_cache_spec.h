// What a kind of layers asks of its cache blocks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pinfer {

// A plain value.
struct KVCacheSpec {
  int32_t block_size = 16;     // tokens
  int32_t sliding_window = 0;  // tokens that a token attends to, itself included; 0 = all

  bool operator==(const KVCacheSpec&) const = default;

  // Blocks that hold num_tokens tokens.
  int32_t num_blocks_for(int64_t num_tokens) const {
    return static_cast<int32_t>((num_tokens + block_size - 1) / block_size);
  }

  // Leading blocks that no token from position num_computed_tokens on attends to.
  int32_t num_skipped_blocks(int32_t num_computed_tokens) const {
    if (sliding_window == 0) return 0;
    return std::max(0, num_computed_tokens - sliding_window + 1) / block_size;
  }

  // Blocks before a block border that the next token attends to; at most all before it.
  int32_t num_window_blocks() const { return num_blocks_for(std::max(1, sliding_window - 1)); }

  // The most blocks that a request of num_tokens tokens holds at once, if a step computes at most
  // max_tokens_per_step of them.
  int32_t max_blocks_held(int64_t num_tokens, int32_t max_tokens_per_step) const {
    const int32_t all = num_blocks_for(num_tokens);
    if (sliding_window == 0) return all;
    return std::min(all, num_blocks_for(int64_t{sliding_window} - 1 + max_tokens_per_step) + 1);
  }
};

}  // namespace pinfer
