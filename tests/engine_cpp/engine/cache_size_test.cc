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

// Of a model whose layers all attend to everything.
Status resolve(int32_t model_max_len, int64_t available_bytes, EngineConfig* config,
               const std::vector<int32_t>& layer_windows = {0}) {
  PINFER_RETURN_IF_ERROR(resolve_max_model_len(model_max_len, config));
  return resolve_cache_size(
      make_kv_cache_config(layer_windows, config->block_size, config->max_model_len), kBlockBytes,
      available_bytes, config);
}

TEST(CacheSize, IsEnoughForAllRequestsWhereMemoryAllows) {
  EngineConfig c = config(0, 0);
  ASSERT_TRUE(resolve(160, int64_t{1} << 40, &c).ok());
  EXPECT_EQ(c.max_model_len, 160);
  EXPECT_EQ(c.num_blocks, 4 * 10 + 1);
}

TEST(CacheSize, IsAQuarterOfTheMemoryOtherwise) {
  EngineConfig c = config(0, 0, 100);
  ASSERT_TRUE(resolve(160, 400 * kBlockBytes, &c).ok());
  EXPECT_EQ(c.num_blocks, 100 + 1);
}

TEST(CacheSize, HoldsOneRequestWhateverTheMemory) {
  EngineConfig c = config(0, 0);
  ASSERT_TRUE(resolve(161, 0, &c).ok());
  EXPECT_EQ(c.num_blocks, 11 + 1);
}

TEST(CacheSize, RefusesAPoolThatHoldsNoRequest) {
  EngineConfig c = config(640, 40);
  const Status status = resolve(8192, int64_t{1} << 40, &c);
  ASSERT_FALSE(status.ok());
  for (const char* part : {"--num-blocks 40", "--max-model-len 640", "40 blocks", "41", "624"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  c = config(640, 41);
  EXPECT_TRUE(resolve(8192, int64_t{1} << 40, &c).ok());
}

// On a device, with so much memory left.
Status resolve_on_device(int64_t cache_bytes, EngineConfig* config) {
  return resolve_device_cache_size(
      make_kv_cache_config(std::vector<int32_t>{0}, config->block_size, config->max_model_len),
      kBlockBytes, cache_bytes, config);
}

TEST(CacheSize, OnADeviceIsWhatFits) {
  EngineConfig c = config(160, 0);
  ASSERT_TRUE(resolve_on_device(1000 * kBlockBytes + 1, &c).ok());
  EXPECT_EQ(c.num_blocks, 1000);
  c = config(160, 0);
  ASSERT_TRUE(resolve_on_device(11 * kBlockBytes, &c).ok());
  EXPECT_EQ(c.num_blocks, 11);
  c = config(160, 30);  // told: the memory is not asked about
  ASSERT_TRUE(resolve_on_device(0, &c).ok());
  EXPECT_EQ(c.num_blocks, 30);
  c = config(160, 10);
  EXPECT_NE(resolve_on_device(0, &c).message().find("--num-blocks 10"), std::string::npos);
}

TEST(CacheSize, OnADeviceRefusesWhatHoldsNoRequest) {
  EngineConfig c = config(160, 0);
  const Status status = resolve_on_device(10 * kBlockBytes, &c);
  EXPECT_EQ(status.code(), StatusCode::RESOURCE_EXHAUSTED);
  for (const char* part : {"leaves 10 MiB for 10 cache blocks", "--max-model-len 160 needs 10 ",
                           "lower --max-model-len to 144", "--gpu-memory-utilization (0.90)"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_EQ(c.num_blocks, 0);
}

TEST(CacheSize, RefusesAContextBeyondTheModels) {
  EngineConfig c = config(200, 0);
  const Status status = resolve(160, int64_t{1} << 40, &c);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("200"), std::string::npos);
  EXPECT_NE(status.message().find("160"), std::string::npos);
}

TEST(CacheSize, CountsWindowsOnly) {
  // A group with a window of 65 holds 64 tokens before a step's 32, and one block for the ends.
  EngineConfig c = config(0, 0);
  c.max_num_batched_tokens = 32;
  ASSERT_TRUE(resolve(1600, int64_t{1} << 40, &c, {65}).ok());
  EXPECT_EQ(c.num_blocks, 4 * 7 + 1);

  c = config(0, 0);
  c.max_num_batched_tokens = 32;
  ASSERT_TRUE(resolve(1600, 0, &c, {65, 65, 0, 65}).ok());
  EXPECT_EQ(c.num_blocks, 100 + 3 * 7 + 1);
}

TEST(CacheSize, SaysWhatFitsBesideWindows) {
  EngineConfig c = config(1600, 100);
  c.max_num_batched_tokens = 32;
  const Status status = resolve(1600, int64_t{1} << 40, &c, {65, 65, 0, 65});
  ASSERT_FALSE(status.ok());
  // 99 blocks: 21 in windows, 78 for full attention.
  for (const char* part : {"needs 121 blocks", "--num-blocks to 122", "--max-model-len to 1248"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  c.num_blocks = 122;
  EXPECT_TRUE(resolve(1600, int64_t{1} << 40, &c, {65, 65, 0, 65}).ok());
}

TEST(AvailableMemory, IsANumberOfThisMachine) {
  EXPECT_GT(available_memory(), 1 << 20);
  EXPECT_LT(available_memory(), int64_t{1} << 50);
}

}  // namespace
}  // namespace pinfer
