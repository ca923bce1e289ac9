#include "kv_cache/kv_cache_manager.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace pinfer {
namespace {

using Ids = std::vector<int32_t>;

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
  gap->block_ids = {first->block_ids[1]};
  manager.drop_keys(*gap, 0);
  EXPECT_EQ(manager.get_computed_blocks(*second).block_ids, (Ids{first->block_ids[0]}));
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
  EXPECT_EQ(request->block_ids, (Ids{1, 2}));
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
  EXPECT_EQ(request->block_ids.size(), 4U);
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
  EXPECT_EQ(second->block_ids, (Ids{1, 2, 3}));
  EXPECT_EQ(manager.prefix_cache_stats().num_hit_tokens, 8);
  EXPECT_EQ(manager.prefix_cache_stats().num_queried_tokens, 20);
}

TEST(KVCacheManagerTest, EqualBlocksAreNotMerged) {
  KVCacheManager manager(make_config(20));
  const auto first = make_request(8);
  const auto second = make_request(8);
  ASSERT_TRUE(admit(manager, *first, 8));
  ASSERT_TRUE(admit(manager, *second, 4));
  EXPECT_EQ(first->block_ids, (Ids{1, 2}));
  EXPECT_EQ(second->block_ids, (Ids{1, 3}));
  EXPECT_EQ(manager.block_pool().cached_block_ids(), (Ids{1, 2, 3}));
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
