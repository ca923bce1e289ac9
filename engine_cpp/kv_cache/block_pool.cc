#include "kv_cache/block_pool.h"

#include <cassert>
#include <utility>

namespace pinfer {

// The free queue is a ring through the null block, which is never free itself: its free_next is the
// front, its free_previous the back.
BlockPool::BlockPool(int32_t num_blocks, int32_t num_groups)
    : blocks_(static_cast<size_t>(num_blocks)), caches_(static_cast<size_t>(num_groups)) {
  assert(num_blocks >= 1);
  block(kNullBlockId).ref_count = 1;
  block(kNullBlockId).free_previous = kNullBlockId;
  block(kNullBlockId).free_next = kNullBlockId;
  for (int32_t id = 1; id < num_blocks; ++id) {
    link_free(block(kNullBlockId).free_previous, id, kNullBlockId);
  }
}

std::optional<int32_t> BlockPool::find_cached_block(const BlockHash& hash, int32_t group_id) const {
  const Cache& cache = caches_[static_cast<size_t>(group_id)];
  const auto found = cache.find(hash);
  if (found == cache.end()) return std::nullopt;
  return found->second;
}

void BlockPool::allocate(int32_t num, std::vector<int32_t>& block_ids) {
  assert(num <= num_free_blocks_);
  for (int32_t i = 0; i < num; ++i) {
    const int32_t id = block(kNullBlockId).free_next;
    unlink_free(id);
    drop_key(id);
    block(id).ref_count = 1;
    block_ids.push_back(id);
  }
}

void BlockPool::touch(int32_t block_id) {
  if (is_free(block_id)) unlink_free(block_id);
  ++block(block_id).ref_count;
}

void BlockPool::free(std::span<const int32_t> block_ids) {
  int32_t front = kNullBlockId;  // the last block put at the front by this call
  for (const int32_t id : block_ids) {
    if (id == kNullBlockId) continue;
    assert(block(id).ref_count > 0);
    if (--block(id).ref_count > 0) continue;
    if (block(id).cache_entry != nullptr) {
      link_free(block(kNullBlockId).free_previous, id, kNullBlockId);
    } else {
      link_free(front, id, block(front).free_next);
      front = id;
    }
  }
}

void BlockPool::register_block(int32_t block_id, const BlockHash& hash, int32_t group_id) {
  assert(block(block_id).cache_entry == nullptr);
  const auto [entry, is_new] = cache(group_id).try_emplace(hash, block_id);
  const int32_t first = entry->second;
  const int32_t last = is_new ? block_id : block(first).same_key_previous;
  block(block_id).group_id = group_id;
  block(block_id).cache_entry = &*entry;
  block(block_id).same_key_previous = last;
  block(block_id).same_key_next = first;
  block(last).same_key_next = block_id;
  block(first).same_key_previous = block_id;
  ++num_cached_blocks_;
  record(KVCacheEvent::Kind::STORED, block_id, hash, group_id);
}

void BlockPool::drop_key(int32_t block_id) {
  Block& dropped = block(block_id);
  if (dropped.cache_entry == nullptr) return;
  record(KVCacheEvent::Kind::REMOVED, block_id, dropped.cache_entry->first, dropped.group_id);
  if (dropped.same_key_next == block_id) {
    Cache& entries = cache(dropped.group_id);
    entries.erase(entries.find(dropped.cache_entry->first));
  } else {
    if (dropped.cache_entry->second == block_id) {
      dropped.cache_entry->second = dropped.same_key_next;
    }
    block(dropped.same_key_previous).same_key_next = dropped.same_key_next;
    block(dropped.same_key_next).same_key_previous = dropped.same_key_previous;
  }
  dropped.cache_entry = nullptr;
  dropped.same_key_previous = kNone;
  dropped.same_key_next = kNone;
  --num_cached_blocks_;
}

void BlockPool::drop_keys(const BlockHash& hash, int32_t group_id) {
  while (const auto id = find_cached_block(hash, group_id)) drop_key(*id);
}

bool BlockPool::reset_prefix_cache() {
  if (num_free_blocks_ != num_usable_blocks()) return false;
  for (Block& reset : blocks_) {
    reset.cache_entry = nullptr;
    reset.same_key_previous = kNone;
    reset.same_key_next = kNone;
  }
  for (Cache& entries : caches_) entries.clear();
  num_cached_blocks_ = 0;
  record(KVCacheEvent::Kind::CLEARED, kNullBlockId, BlockHash{}, 0);
  return true;
}

std::vector<KVCacheEvent> BlockPool::take_events() { return std::exchange(events_, {}); }

std::vector<int32_t> BlockPool::free_block_ids() const {
  std::vector<int32_t> ids;
  for (int32_t id = block(kNullBlockId).free_next; id != kNullBlockId; id = block(id).free_next) {
    ids.push_back(id);
  }
  return ids;
}

std::vector<int32_t> BlockPool::cached_block_ids() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < num_blocks(); ++id) {
    if (block(id).cache_entry != nullptr) ids.push_back(id);
  }
  return ids;
}

void BlockPool::link_free(int32_t previous, int32_t block_id, int32_t next) {
  block(previous).free_next = block_id;
  block(block_id).free_previous = previous;
  block(block_id).free_next = next;
  block(next).free_previous = block_id;
  ++num_free_blocks_;
}

void BlockPool::unlink_free(int32_t block_id) {
  Block& taken = block(block_id);
  block(taken.free_previous).free_next = taken.free_next;
  block(taken.free_next).free_previous = taken.free_previous;
  taken.free_previous = kNone;
  taken.free_next = kNone;
  --num_free_blocks_;
}

void BlockPool::record(KVCacheEvent::Kind kind, int32_t block_id, const BlockHash& hash,
                       int32_t group_id) {
  if (record_events_) events_.push_back({kind, block_id, hash, group_id});
}

}  // namespace pinfer
