#include "kv_cache/kv_cache_manager.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace pinfer {
namespace {

using Ids = std::vector<int32_t>;
using Tables = std::vector<Ids>;  // by group

EngineConfig make_config(int32_t num_blocks) {
  EngineConfig config;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  config.max_model_len = 64;
  return config;
}

std::unique_ptr<Request> make_request(int32_t num_tokens, int32_t first = 100) {
  Ids prompt(static_cast<size_t>(num_tokens));
  std::iota(prompt.begin(), prompt.end(), first);
  return std::make_unique<Request>("r", std::move(prompt), SamplingParams());
}

// Admits the request and counts num_new_tokens as computed.
bool admit(KVCacheManager& manager, Request& request, int32_t num_new_tokens,
           int32_t num_reserved_blocks = 0) {
  const ComputedBlocks computed = manager.get_computed_blocks(request);
  if (!manager.allocate_for_admission(request, computed, num_new_tokens, num_reserved_blocks)) {
    return false;
  }
  request.num_computed_tokens = computed.num_tokens + num_new_tokens;
  return true;
}

TEST(KVCacheManagerTest, OneTokenIsAlwaysComputed) {
  for (const auto& [num_tokens, num_hit] :
       std::vector<std::pair<int32_t, int32_t>>{{3, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 8}}) {
    KVCacheManager manager(make_config(20));
    const auto first = make_request(num_tokens);
    ASSERT_TRUE(admit(manager, *first, num_tokens));
    const auto second = make_request(num_tokens);
    EXPECT_EQ(manager.get_computed_blocks(*second).num_tokens, num_hit) << num_tokens;
  }
}

TEST(KVCacheManagerTest, AHitEndsAtTheFirstGap) {
  KVCacheManager manager(make_config(20));
  const auto first = make_request(16);
  ASSERT_TRUE(admit(manager, *first, 16));
  const auto second = make_request(16);
  EXPECT_EQ(manager.get_computed_blocks(*second).num_tokens, 12);
  const auto gap = make_request(4);
  gap->block_ids = {{first->block_ids[0][1]}};
  manager.drop_keys(*gap, 0);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids, (Tables{{first->block_ids[0][0]}}));
}

TEST(KVCacheManagerTest, PromptsWhoseLogProbabilitiesAreWantedSkipTheCache) {
  KVCacheManager manager(make_config(20));
  const auto first = make_request(16);
  ASSERT_TRUE(admit(manager, *first, 16));
  SamplingParams params;
  params.prompt_logprobs = 0;
  Request scored("s", Ids(first->all_token_ids().begin(), first->all_token_ids().end()), params);
  EXPECT_EQ(manager.get_computed_blocks(scored).num_tokens, 0);
}

TEST(KVCacheManagerTest, NothingIsFoundWithCachingOff) {
  EngineConfig config = make_config(20);
  config.enable_prefix_caching = false;
  KVCacheManager manager(config);
  const auto first = make_request(9);
  ASSERT_TRUE(admit(manager, *first, 9));
  EXPECT_EQ(manager.get_computed_blocks(*make_request(9)).num_tokens, 0);
  EXPECT_EQ(manager.block_pool().num_cached_blocks(), 0);
  EXPECT_TRUE(first->block_hashes.empty()) << "hashing costs time";
  EXPECT_EQ(manager.prefix_cache_stats().num_queried_tokens, 0);
}

TEST(KVCacheManagerTest, BlocksAreRegisteredWhenTheirLastTokenIsScheduled) {
  KVCacheManager manager(make_config(20));
  const auto request = make_request(10);
  ASSERT_TRUE(admit(manager, *request, 7));
  EXPECT_EQ(manager.block_pool().cached_block_ids(), (Ids{1}));
  ASSERT_TRUE(manager.allocate_for_running(*request, 1));
  EXPECT_EQ(manager.block_pool().cached_block_ids(), (Ids{1, 2}));
  EXPECT_EQ(request->block_ids, (Tables{{1, 2}}));
}

TEST(KVCacheManagerTest, WholePromptHasToFitAtAdmission) {
  EngineConfig config = make_config(4);
  KVCacheManager reserving(config);
  EXPECT_FALSE(admit(reserving, *make_request(13), 4));
  EXPECT_EQ(reserving.block_pool().num_free_blocks(), 3) << "nothing is done";
  EXPECT_TRUE(admit(reserving, *make_request(12), 4));

  config.scheduler_reserve_full_isl = false;
  KVCacheManager trusting(config);
  EXPECT_TRUE(admit(trusting, *make_request(13), 4));
}

TEST(KVCacheManagerTest, ReservedBlocksAreOutOfBoundsAtAdmissionOnly) {
  EngineConfig config = make_config(5);
  config.scheduler_reserve_full_isl = false;
  KVCacheManager manager(config);
  const auto request = make_request(20);
  EXPECT_FALSE(admit(manager, *request, 8, 3));
  EXPECT_TRUE(admit(manager, *request, 8, 2));
  EXPECT_TRUE(manager.allocate_for_running(*request, 8));
  EXPECT_EQ(manager.block_pool().num_free_blocks(), 0);
  request->num_computed_tokens = 16;
  EXPECT_FALSE(manager.allocate_for_running(*request, 1));
  EXPECT_EQ(request->block_ids[0].size(), 4U);
}

TEST(KVCacheManagerTest, FoundBlocksThatAreFreeCountAgainstTheFreeOnes) {
  KVCacheManager manager(make_config(4));
  const auto first = make_request(8);
  ASSERT_TRUE(admit(manager, *first, 8));
  manager.free(*first);
  // Two found blocks leave the free queue, so one is left for the rest.
  EXPECT_FALSE(admit(manager, *make_request(13), 5));
  const auto second = make_request(12);
  ASSERT_TRUE(admit(manager, *second, 4));
  EXPECT_EQ(second->block_ids, (Tables{{1, 2, 3}}));
  EXPECT_EQ(manager.prefix_cache_stats().num_hit_tokens, 8);
  EXPECT_EQ(manager.prefix_cache_stats().num_queried_tokens, 20);
}

TEST(KVCacheManagerTest, EqualBlocksAreNotMerged) {
  KVCacheManager manager(make_config(20));
  const auto first = make_request(8);
  const auto second = make_request(8);
  ASSERT_TRUE(admit(manager, *first, 8));
  ASSERT_TRUE(admit(manager, *second, 4));
  EXPECT_EQ(first->block_ids, (Tables{{1, 2}}));
  EXPECT_EQ(second->block_ids, (Tables{{1, 3}}));
  EXPECT_EQ(manager.block_pool().cached_block_ids(), (Ids{1, 2, 3}));
}

// Groups: full attention, then one with a window of 6 tokens.
KVCacheManager make_hybrid(int32_t num_blocks, int32_t max_num_batched_tokens = 8) {
  EngineConfig config = make_config(num_blocks);
  config.max_num_batched_tokens = max_num_batched_tokens;
  return KVCacheManager(config, make_kv_cache_config(std::vector<int32_t>{6, 0}, 4, 64));
}

TEST(KVCacheManagerTest, GroupsTakeTheirBlocksFromOnePool) {
  KVCacheManager manager = make_hybrid(20);
  const auto request = make_request(16);
  ASSERT_TRUE(admit(manager, *request, 8));
  EXPECT_EQ(request->block_ids, (Tables{{1, 2}, {3, 4}}));
  ASSERT_TRUE(manager.allocate_for_running(*request, 8));
  EXPECT_EQ(request->block_ids, (Tables{{1, 2, 5, 6}, {3, 4, 7, 8}}));
  // The token at 16 attends to 11, ..., so the window's first two blocks are not needed any more.
  request->num_computed_tokens = 16;
  request->append_output_token_id(7);
  ASSERT_TRUE(manager.allocate_for_running(*request, 1));
  EXPECT_EQ(request->block_ids, (Tables{{1, 2, 5, 6, 9}, {0, 0, 7, 8, 10}}));
  EXPECT_EQ(manager.block_pool().num_free_blocks(), 19 - 8);
  manager.free(*request);
  EXPECT_EQ(manager.block_pool().num_free_blocks(), 19);
}

TEST(KVCacheManagerTest, AllGroupsOrNoneGetBlocks) {
  KVCacheManager manager = make_hybrid(8);
  const auto request = make_request(12);
  ASSERT_TRUE(admit(manager, *request, 8));
  EXPECT_EQ(manager.block_pool().num_free_blocks(), 3);
  ASSERT_TRUE(manager.allocate_for_running(*request, 4));
  const Tables before = request->block_ids;
  request->append_output_token_id(7);
  request->num_computed_tokens = 8;  // nothing has left the window
  EXPECT_FALSE(manager.allocate_for_running(*request, 5));
  EXPECT_EQ(request->block_ids, before);
  EXPECT_EQ(manager.block_pool().num_free_blocks(), 1);
}

TEST(KVCacheManagerTest, AHitIsCachedForEveryGroup) {
  KVCacheManager manager = make_hybrid(40);
  const auto first = make_request(24);
  ASSERT_TRUE(admit(manager, *first, 24));
  EXPECT_EQ(first->block_ids, (Tables{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}));
  const auto second = make_request(24);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids,
            (Tables{{1, 2, 3, 4, 5}, {0, 0, 0, 10, 11}}));
  // A gap in the window: it has to end before it. One in front of it: nothing changes.
  manager.block_pool().drop_key(7);
  EXPECT_EQ(manager.get_computed_blocks(*second).num_tokens, 20);
  manager.block_pool().drop_key(11);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids, (Tables{{1, 2, 3, 4}, {0, 0, 9, 10}}));
  // A gap in full attention bounds the window's search.
  manager.block_pool().drop_key(4);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids, (Tables{{1, 2, 3}, {0, 8, 9}}));
  // The window fits nowhere any more.
  manager.block_pool().drop_key(8);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids, (Tables{{}, {}}));
}

TEST(KVCacheManagerTest, BlocksThatHaveLeftTheWindowLoseTheirKeysToo) {
  EngineConfig config = make_config(40);
  KVCacheManager manager(config, uniform_kv_cache_config(2, 4, 6));
  const auto request = make_request(24);
  ASSERT_TRUE(admit(manager, *request, 20));
  ASSERT_TRUE(manager.allocate_for_running(*request, 4));
  EXPECT_EQ(manager.get_computed_blocks(*make_request(13)).num_tokens, 12);
  manager.drop_keys(*request, 0);
  EXPECT_EQ(manager.get_computed_blocks(*make_request(13)).num_tokens, 0);
  EXPECT_EQ(manager.block_pool().num_cached_blocks(), 0);
}

TEST(KVCacheManagerTest, FoundBlocksMakeRoomWhenTheyLeaveTheWindow) {
  EngineConfig config = make_config(6);
  config.max_num_batched_tokens = 4;
  KVCacheManager manager(config, uniform_kv_cache_config(1, 4, 6));
  const auto first = make_request(12);
  ASSERT_TRUE(admit(manager, *first, 12));
  manager.free(*first);
  // Two blocks are found and four are the most that are held at once: five are enough.
  EXPECT_TRUE(admit(manager, *make_request(40), 4));
}

TEST(KVCacheManagerTest, DroppedKeysAreNotFound) {
  KVCacheManager manager(make_config(20));
  const auto request = make_request(13);
  ASSERT_TRUE(admit(manager, *request, 13));
  manager.drop_keys(*request, 1);
  EXPECT_EQ(manager.get_computed_blocks(*make_request(13)).num_tokens, 4);
  manager.free(*request);
  EXPECT_EQ(manager.block_pool().free_block_ids()[0], 4) << "without a key, the last one first";
}

}  // namespace
}  // namespace pinfer
