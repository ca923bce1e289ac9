// The blocks of the KV cache: who holds them, which are free and in what order they are handed out,
// and which carry a key of the prefix cache.
//
// A free block may still carry a key: it is then an eviction candidate that a lookup can revive. It
// loses the key when it is handed out again. Keys are looked up by group: a block holds the layers
// of the group that registered it, and is of no use to another one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv_cache/block_hash.h"

namespace pinfer {

// What happened to the prefix cache, in order; recorded only when asked for.
struct KVCacheEvent {
  enum class Kind { STORED, REMOVED, CLEARED };
  Kind kind = Kind::STORED;
  int32_t block_id = 0;  // of STORED and REMOVED
  BlockHash block_hash{};
  int32_t group_id = 0;
};

// Not thread-safe: it belongs to the thread that drives the scheduler.
class BlockPool {
 public:
  // Never handed out, never free: a place holder in block tables.
  static constexpr int32_t kNullBlockId = 0;

  // REQUIRES: num_blocks >= 1, the null block included.
  explicit BlockPool(int32_t num_blocks, int32_t num_groups = 1);

  int32_t num_blocks() const { return static_cast<int32_t>(blocks_.size()); }
  int32_t num_usable_blocks() const { return num_blocks() - 1; }
  int32_t num_free_blocks() const { return num_free_blocks_; }
  int32_t num_cached_blocks() const { return num_cached_blocks_; }  // that carry a key

  bool is_free(int32_t block_id) const { return block(block_id).ref_count == 0; }
  int32_t ref_count(int32_t block_id) const { return block(block_id).ref_count; }

  // The block registered earliest among those that still carry the key.
  std::optional<int32_t> find_cached_block(const BlockHash& hash, int32_t group_id = 0) const;

  // Appends num blocks from the front of the free queue to block_ids, each with one reference and
  // without a key. REQUIRES: num <= num_free_blocks().
  void allocate(int32_t num, std::vector<int32_t>& block_ids);

  // Adds a reference; a free block leaves the free queue.
  void touch(int32_t block_id);

  // Takes one reference from each block. Those without references become free: blocks without a
  // key, as one run in this order, at the front of the free queue; blocks with a key at the back.
  void free(std::span<const int32_t> block_ids);

  // Gives the block a key. Equal keys are not looked for: duplicates are allowed.
  // REQUIRES: the block carries no key.
  void register_block(int32_t block_id, const BlockHash& hash, int32_t group_id = 0);

  // Takes the block's key, if it has one.
  void drop_key(int32_t block_id);

  // Takes the key from every block of the group that has it.
  void drop_keys(const BlockHash& hash, int32_t group_id);

  // Takes all keys. False, and nothing done, while any block is held.
  bool reset_prefix_cache();

  void set_record_events(bool record) { record_events_ = record; }
  std::vector<KVCacheEvent> take_events();

  // For tests and traces: the free queue, next to be handed out first; blocks with a key,
  // ascending.
  std::vector<int32_t> free_block_ids() const;
  std::vector<int32_t> cached_block_ids() const;

 private:
  static constexpr int32_t kNone = -1;
  using Cache = std::unordered_map<BlockHash, int32_t, BlockHashHasher>;  // key -> first block

  struct Block {
    int32_t ref_count = 0;
    int32_t free_previous = kNone;  // neighbours in the free queue
    int32_t free_next = kNone;
    // Blocks with the same key form a ring in order of registration; the cache names the first.
    int32_t same_key_previous = kNone;
    int32_t same_key_next = kNone;
    int32_t group_id = 0;                      // of the key
    Cache::value_type* cache_entry = nullptr;  // none: no key
  };

  Block& block(int32_t block_id) { return blocks_[static_cast<size_t>(block_id)]; }
  const Block& block(int32_t block_id) const { return blocks_[static_cast<size_t>(block_id)]; }
  void link_free(int32_t previous, int32_t block_id, int32_t next);
  void unlink_free(int32_t block_id);
  Cache& cache(int32_t group_id) { return caches_[static_cast<size_t>(group_id)]; }
  void record(KVCacheEvent::Kind kind, int32_t block_id, const BlockHash& hash, int32_t group_id);

  std::vector<Block> blocks_;
  std::vector<Cache> caches_;  // by group
  int32_t num_free_blocks_ = 0;
  int32_t num_cached_blocks_ = 0;
  bool record_events_ = false;
  std::vector<KVCacheEvent> events_;
};

}  // namespace pinfer
