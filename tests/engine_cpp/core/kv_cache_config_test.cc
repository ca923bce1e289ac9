#include "core/kv_cache_config.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

using Layers = std::vector<int32_t>;

std::vector<Layers> layers_of(const KVCacheConfig& config) {
  std::vector<Layers> layers;
  for (const KVCacheGroup& group : config.groups) layers.push_back(group.layers);
  return layers;
}

// Layers with a window, then one without, again and again.
Layers pattern(int32_t num_local, int32_t num_layers) {
  Layers windows;
  for (int32_t i = 0; i < num_layers; ++i) {
    windows.push_back(i % (num_local + 1) == num_local ? 0 : 512);
  }
  return windows;
}

TEST(KVCacheConfig, LayersAlikeAreOneGroup) {
  const KVCacheConfig config = make_kv_cache_config(Layers{0, 0, 0}, 16, 1024);
  EXPECT_EQ(layers_of(config), (std::vector<Layers>{{0, 1, 2}}));
  EXPECT_EQ(config.num_tensors(), 3);
  EXPECT_EQ(config.block_size(), 16);
  EXPECT_EQ(config.max_blocks_held(1000, 2048), 63);
  EXPECT_EQ(layers_of(uniform_kv_cache_config(3, 16)), layers_of(config));
}

TEST(KVCacheConfig, FullAttentionComesFirst) {
  const KVCacheConfig config = make_kv_cache_config(Layers{64, 0, 32, 64, 0, 32}, 16, 1024);
  EXPECT_EQ(layers_of(config), (std::vector<Layers>{{1, 4}, {2, 5}, {0, 3}}));
  EXPECT_EQ(config.groups[1].spec.sliding_window, 32);
  const std::vector<KVCachePlace> places = config.places();
  ASSERT_EQ(places.size(), 6U);
  EXPECT_EQ(places[3].group_id, 2);
  EXPECT_EQ(places[3].tensor_id, 1);
}

TEST(KVCacheConfig, AWindowThatNoRequestOutgrowsIsNone) {
  EXPECT_EQ(make_kv_cache_config(Layers{100, 0, 101}, 16, 100).num_groups(), 1);
  EXPECT_EQ(make_kv_cache_config(Layers{99, 0, 101}, 16, 100).num_groups(), 3);
}

TEST(KVCacheConfig, GroupsAreFewAndLittleIsPadded) {
  struct Case {
    int32_t num_local, num_layers, num_groups, num_tensors;
  };
  // One local layer to one global: two groups. Five to one with a rest: 22 and 4 layers, 29 and 5,
  // 40 and 8, 52 and 10.
  for (const Case& c : std::vector<Case>{
           {1, 26, 2, 13}, {5, 26, 7, 4}, {5, 34, 7, 5}, {5, 48, 6, 8}, {5, 62, 7, 10}}) {
    const KVCacheConfig config = make_kv_cache_config(pattern(c.num_local, c.num_layers), 16, 8192);
    EXPECT_EQ(config.num_groups(), c.num_groups) << c.num_layers;
    EXPECT_EQ(config.num_tensors(), c.num_tensors) << c.num_layers;
  }
  // 13 and 12: one is padded. 20 and 30: nothing is.
  Layers windows(25, 0);
  for (size_t i = 0; i < 12; ++i) windows[i] = 512;
  EXPECT_EQ(make_kv_cache_config(windows, 16, 8192).num_tensors(), 13);
  windows.assign(50, 0);
  for (size_t i = 0; i < 30; ++i) windows[i] = 512;
  EXPECT_EQ(make_kv_cache_config(windows, 16, 8192).num_tensors(), 10);
  EXPECT_EQ(make_kv_cache_config(windows, 16, 8192).num_groups(), 5);
}

TEST(KVCacheConfig, EveryLayerHasAPlaceOfItsOwn) {
  const KVCacheConfig config = make_kv_cache_config(pattern(5, 26), 16, 8192);
  std::vector<std::vector<bool>> taken(
      static_cast<size_t>(config.num_groups()),
      std::vector<bool>(static_cast<size_t>(config.num_tensors())));
  const std::vector<KVCachePlace> places = config.places();
  ASSERT_EQ(places.size(), 26U);
  for (size_t layer = 0; layer < places.size(); ++layer) {
    const auto group = static_cast<size_t>(places[layer].group_id);
    const auto tensor = static_cast<size_t>(places[layer].tensor_id);
    EXPECT_FALSE(taken[group][tensor]);
    taken[group][tensor] = true;
    EXPECT_EQ(config.groups[group].spec.sliding_window, pattern(5, 26)[layer]);
  }
}

TEST(KVCacheConfig, TokensHeldIsTheInverseOfBlocksHeld) {
  const KVCacheConfig config = make_kv_cache_config(Layers{65, 65, 0}, 16, 1600);
  // Up to the window and a step all three groups grow; then one.
  EXPECT_EQ(config.max_blocks_held(1600, 32), 100 + 2 * 7);
  EXPECT_EQ(config.max_tokens_held(113, 1600, 32), 99 * 16);
  EXPECT_EQ(config.max_tokens_held(114, 1600, 32), 1600);
  EXPECT_EQ(config.max_tokens_held(9, 1600, 32), 48);
  EXPECT_EQ(config.max_tokens_held(2, 1600, 32), 0);
}

}  // namespace
}  // namespace pinfer
