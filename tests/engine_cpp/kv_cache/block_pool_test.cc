#include "kv_cache/block_pool.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

using Ids = std::vector<int32_t>;

BlockHash key(uint8_t value) {
  BlockHash hash{};
  hash[0] = value;
  hash[31] = value;
  return hash;
}

Ids allocate(BlockPool& pool, int32_t num) {
  Ids ids;
  pool.allocate(num, ids);
  return ids;
}

TEST(BlockPoolTest, HandsOutInOrderAndNeverTheNullBlock) {
  BlockPool pool(5);
  EXPECT_EQ(pool.num_usable_blocks(), 4);
  EXPECT_EQ(pool.num_free_blocks(), 4);
  EXPECT_EQ(allocate(pool, 4), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free_blocks(), 0);
  EXPECT_EQ(pool.free_block_ids(), Ids{});
}

TEST(BlockPoolTest, BlocksWithoutKeyGoToTheFrontAsOneRun) {
  BlockPool pool(7);
  allocate(pool, 4);
  pool.free(Ids{4, 3});
  EXPECT_EQ(pool.free_block_ids(), (Ids{4, 3, 5, 6}));
  pool.free(Ids{2, 1});
  EXPECT_EQ(pool.free_block_ids(), (Ids{2, 1, 4, 3, 5, 6}));
}

TEST(BlockPoolTest, BlocksWithKeyGoToTheBack) {
  BlockPool pool(6);
  allocate(pool, 4);
  pool.register_block(1, key(1));
  pool.register_block(2, key(2));
  pool.free(Ids{4, 2, 3, 1});
  EXPECT_EQ(pool.free_block_ids(), (Ids{4, 3, 5, 2, 1}));
  EXPECT_EQ(pool.cached_block_ids(), (Ids{1, 2}));
}

TEST(BlockPoolTest, SharedBlocksStay) {
  BlockPool pool(3);
  allocate(pool, 1);
  pool.touch(1);
  EXPECT_EQ(pool.ref_count(1), 2);
  pool.free(Ids{1});
  EXPECT_FALSE(pool.is_free(1));
  EXPECT_EQ(pool.num_free_blocks(), 1);
  pool.free(Ids{1});
  EXPECT_TRUE(pool.is_free(1));
}

TEST(BlockPoolTest, LookUpRevivesAFreeBlockAndReuseEvictsIt) {
  BlockPool pool(4);
  allocate(pool, 2);
  pool.register_block(1, key(1));
  pool.register_block(2, key(2));
  pool.free(Ids{2, 1});
  EXPECT_EQ(pool.free_block_ids(), (Ids{3, 2, 1}));
  EXPECT_EQ(pool.find_cached_block(key(1)), 1);
  EXPECT_EQ(pool.free_block_ids(), (Ids{3, 2, 1})) << "a look-up changes nothing";
  pool.touch(1);
  EXPECT_EQ(pool.free_block_ids(), (Ids{3, 2}));
  EXPECT_EQ(allocate(pool, 2), (Ids{3, 2}));
  EXPECT_EQ(pool.find_cached_block(key(2)), std::nullopt);
  EXPECT_EQ(pool.find_cached_block(key(1)), 1);
  EXPECT_EQ(pool.num_cached_blocks(), 1);
}

TEST(BlockPoolTest, OfEqualKeysTheEarliestThatIsLeftIsFound) {
  BlockPool pool(6);
  allocate(pool, 5);
  for (const int32_t id : {4, 2, 5, 1}) pool.register_block(id, key(7));
  EXPECT_EQ(pool.find_cached_block(key(7)), 4);
  pool.drop_key(5);  // one in the middle
  pool.drop_key(4);  // the first
  EXPECT_EQ(pool.find_cached_block(key(7)), 2);
  pool.drop_key(1);  // the last
  pool.register_block(3, key(7));
  pool.drop_key(2);
  EXPECT_EQ(pool.find_cached_block(key(7)), 3);
  pool.drop_key(3);
  pool.drop_key(3);
  EXPECT_EQ(pool.find_cached_block(key(7)), std::nullopt);
  EXPECT_EQ(pool.num_cached_blocks(), 0);
}

TEST(BlockPoolTest, ResetOnlyWhileNothingIsHeld) {
  BlockPool pool(4);
  allocate(pool, 2);
  pool.register_block(1, key(1));
  EXPECT_FALSE(pool.reset_prefix_cache());
  EXPECT_EQ(pool.find_cached_block(key(1)), 1);
  pool.free(Ids{2, 1});
  EXPECT_TRUE(pool.reset_prefix_cache());
  EXPECT_EQ(pool.find_cached_block(key(1)), std::nullopt);
  EXPECT_EQ(pool.num_cached_blocks(), 0);
  EXPECT_EQ(pool.free_block_ids(), (Ids{2, 3, 1})) << "the order stays";
  allocate(pool, 3);
  pool.register_block(1, key(1));
  EXPECT_EQ(pool.find_cached_block(key(1)), 1);
}

TEST(BlockPoolTest, EventsAreRecordedWhenAskedFor) {
  BlockPool pool(4);
  allocate(pool, 2);
  pool.register_block(1, key(1));
  EXPECT_TRUE(pool.take_events().empty());
  pool.set_record_events(true);
  pool.register_block(2, key(2));
  pool.free(Ids{2, 1});
  allocate(pool, 2);  // 3, then 2, which loses its key
  const std::vector<KVCacheEvent> events = pool.take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, KVCacheEvent::Kind::STORED);
  EXPECT_EQ(events[1].kind, KVCacheEvent::Kind::REMOVED);
  for (const KVCacheEvent& event : events) {
    EXPECT_EQ(event.block_id, 2);
    EXPECT_EQ(event.block_hash, key(2));
  }
  EXPECT_TRUE(pool.take_events().empty());
}

TEST(BlockPoolTest, FreeingTheNullBlockDoesNothing) {
  BlockPool pool(3);
  pool.free(Ids{BlockPool::kNullBlockId});
  EXPECT_EQ(pool.free_block_ids(), (Ids{1, 2}));
}

}  // namespace
}  // namespace pinfer
