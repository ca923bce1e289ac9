#include "core/kv_cache_config.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <utility>

namespace pinfer {
namespace {

using LayersByWindow = std::map<int32_t, std::vector<int32_t>>;  // full attention, 0, comes first

int32_t num_groups_of(size_t num_layers, int32_t group_size) {
  return (static_cast<int32_t>(num_layers) + group_size - 1) / group_size;
}

// Over all kinds; 0 if the size pads one too much.
int32_t count_groups(const LayersByWindow& kinds, int32_t group_size) {
  int32_t num_groups = 0;
  for (const auto& [window, layers] : kinds) {
    const int32_t num_needed = num_groups_of(layers.size(), group_size);
    const int32_t num_padded = num_needed * group_size - static_cast<int32_t>(layers.size());
    const int32_t least_layers_per_padded = window == 0 ? 12 : 6;
    if (num_padded * least_layers_per_padded > static_cast<int32_t>(layers.size())) return 0;
    num_groups += num_needed;
  }
  return num_groups;
}

// Of equal counts the smaller size pads less.
int32_t choose_group_size(const LayersByWindow& kinds) {
  size_t largest = 0;
  for (const auto& [window, layers] : kinds) largest = std::max(largest, layers.size());
  int32_t chosen = 1;
  for (int32_t size = 2; size <= static_cast<int32_t>(largest); ++size) {
    const int32_t num_groups = count_groups(kinds, size);
    if (num_groups > 0 && num_groups < count_groups(kinds, chosen)) chosen = size;
  }
  return chosen;
}

}  // namespace

int32_t KVCacheConfig::num_tensors() const {
  size_t largest = 0;
  for (const KVCacheGroup& group : groups) largest = std::max(largest, group.layers.size());
  return static_cast<int32_t>(largest);
}

std::vector<KVCachePlace> KVCacheConfig::places() const {
  size_t num_layers = 0;
  for (const KVCacheGroup& group : groups) num_layers += group.layers.size();
  std::vector<KVCachePlace> places(num_layers);
  for (int32_t g = 0; g < num_groups(); ++g) {
    int32_t tensor_id = 0;
    for (const int32_t layer : groups[static_cast<size_t>(g)].layers) {
      places[static_cast<size_t>(layer)] = {g, tensor_id++};
    }
  }
  return places;
}

int64_t KVCacheConfig::max_blocks_held(int64_t num_tokens, int32_t max_tokens_per_step) const {
  int64_t num_blocks = 0;
  for (const KVCacheGroup& group : groups) {
    num_blocks += group.spec.max_blocks_held(num_tokens, max_tokens_per_step);
  }
  return num_blocks;
}

int64_t KVCacheConfig::max_tokens_held(int64_t num_blocks, int64_t limit,
                                       int32_t max_tokens_per_step) const {
  int64_t fits = 0, beyond = limit + 1;
  while (beyond - fits > 1) {
    const int64_t middle = fits + (beyond - fits) / 2;
    (max_blocks_held(middle, max_tokens_per_step) <= num_blocks ? fits : beyond) = middle;
  }
  return fits;
}

KVCacheConfig uniform_kv_cache_config(int32_t num_layers, int32_t block_size,
                                      int32_t sliding_window) {
  KVCacheGroup group{{.block_size = block_size, .sliding_window = sliding_window}, {}};
  group.layers.resize(static_cast<size_t>(num_layers));
  std::iota(group.layers.begin(), group.layers.end(), 0);
  return {{std::move(group)}};
}

KVCacheConfig make_kv_cache_config(std::span<const int32_t> layer_windows, int32_t block_size,
                                   int32_t max_model_len) {
  assert(!layer_windows.empty());
  LayersByWindow kinds;
  for (size_t layer = 0; layer < layer_windows.size(); ++layer) {
    const int32_t window = layer_windows[layer] < max_model_len ? layer_windows[layer] : 0;
    kinds[window].push_back(static_cast<int32_t>(layer));
  }
  const int32_t group_size = choose_group_size(kinds);
  KVCacheConfig config;
  for (const auto& [window, layers] : kinds) {
    const auto num_groups = static_cast<size_t>(num_groups_of(layers.size(), group_size));
    for (size_t first = 0; first < num_groups; ++first) {
      KVCacheGroup& group = config.groups.emplace_back();
      group.spec = {.block_size = block_size, .sliding_window = window};
      for (size_t i = first; i < layers.size(); i += num_groups) group.layers.push_back(layers[i]);
    }
  }
  return config;
}

}  // namespace pinfer
