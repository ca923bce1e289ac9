#include "engine/cache_size.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;

EngineConfig config(int32_t max_model_len, int32_t num_blocks, int32_t max_num_seqs = 4) {
  EngineConfig config;
  config.max_model_len = max_model_len;
  config.num_blocks = num_blocks;
  config.max_num_seqs = max_num_seqs;
  return config;
}

TEST(CacheSize, IsEnoughForAllRequestsWhereMemoryAllows) {
  EngineConfig c = config(0, 0);
  ASSERT_TRUE(resolve_cache_size(160, kBlockBytes, int64_t{1} << 40, &c).ok());
  EXPECT_EQ(c.max_model_len, 160);
  EXPECT_EQ(c.num_blocks, 4 * 10 + 1);
}

TEST(CacheSize, IsAQuarterOfTheMemoryOtherwise) {
  EngineConfig c = config(0, 0, 100);
  ASSERT_TRUE(resolve_cache_size(160, kBlockBytes, 400 * kBlockBytes, &c).ok());
  EXPECT_EQ(c.num_blocks, 100 + 1);
}

TEST(CacheSize, HoldsOneRequestWhateverTheMemory) {
  EngineConfig c = config(0, 0);
  ASSERT_TRUE(resolve_cache_size(161, kBlockBytes, 0, &c).ok());
  EXPECT_EQ(c.num_blocks, 11 + 1);
}

TEST(CacheSize, RefusesAPoolThatHoldsNoRequest) {
  EngineConfig c = config(640, 40);
  const Status status = resolve_cache_size(8192, kBlockBytes, int64_t{1} << 40, &c);
  ASSERT_FALSE(status.ok());
  for (const char* part : {"--num-blocks 40", "--max-model-len 640", "40 blocks", "41", "624"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  c = config(640, 41);
  EXPECT_TRUE(resolve_cache_size(8192, kBlockBytes, int64_t{1} << 40, &c).ok());
}

TEST(CacheSize, RefusesAContextBeyondTheModels) {
  EngineConfig c = config(200, 0);
  const Status status = resolve_cache_size(160, kBlockBytes, int64_t{1} << 40, &c);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("200"), std::string::npos);
  EXPECT_NE(status.message().find("160"), std::string::npos);
}

TEST(AvailableMemory, IsANumberOfThisMachine) {
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

}  // namespace
}  // namespace pinfer
