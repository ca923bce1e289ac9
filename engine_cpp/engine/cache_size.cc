#include "engine/cache_size.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace pinfer {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in a one-line file; kUnlimited if there is none ("max", unreadable).
int64_t read_number(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnlimited;
}

int64_t system_available() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    std::getline(file, unit);
    if (name == "MemAvailable:") return kilobytes * 1024;
  }
  return kUnlimited;
}

// What the groups from `group` up to the root of one hierarchy leave.
int64_t group_available(const std::string& mount, std::string group, const char* limit_file,
                        const char* usage_file) {
  int64_t available = kUnlimited;
  for (;;) {
    const std::string folder = mount + (group == "/" ? "" : group);
    const int64_t limit = read_number(folder + "/" + limit_file);
    const int64_t usage = read_number(folder + "/" + usage_file);
    if (limit != kUnlimited && usage != kUnlimited) {
      available = std::min(available, std::max<int64_t>(limit - usage, 0));
    }
    if (group.empty() || group == "/") return available;
    const size_t slash = group.rfind('/');
    group = slash == 0 || slash == std::string::npos ? "/" : group.substr(0, slash);
  }
}

int64_t cgroup_available() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  int64_t available = kUnlimited;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      available = std::min(
          available, group_available("/sys/fs/cgroup", group, "memory.max", "memory.current"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      available =
          std::min(available, group_available("/sys/fs/cgroup/memory", group,
                                              "memory.limit_in_bytes", "memory.usage_in_bytes"));
    }
  }
  return available;
}

}  // namespace

int64_t available_memory() { return std::min(system_available(), cgroup_available()); }

Status resolve_max_model_len(int32_t model_max_len, EngineConfig* config) {
  if (config->max_model_len > model_max_len) {
    return Status::invalid_argument("--max-model-len " + std::to_string(config->max_model_len) +
                                    " is more than the bundle's max_model_len " +
                                    std::to_string(model_max_len));
  }
  if (config->max_model_len == 0) config->max_model_len = model_max_len;
  return Status();
}

Status resolve_cache_size(const KVCacheConfig& kv_cache_config, int64_t bytes_per_block,
                          int64_t available_bytes, EngineConfig* config) {
  const int64_t per_request =
      kv_cache_config.max_blocks_held(config->max_model_len, config->max_num_batched_tokens);
  constexpr int64_t kNullBlock = 1;
  if (config->num_blocks == 0) {
    const int64_t for_all = per_request * config->max_num_seqs;
    const int64_t in_memory = available_bytes / 4 / bytes_per_block;
    const int64_t blocks = std::max(std::min(for_all, in_memory), per_request);
    config->num_blocks =
        static_cast<int32_t>(std::min<int64_t>(blocks + kNullBlock, kMaxNumBlocks));
  }
  if (config->num_blocks - kNullBlock < per_request) {
    return Status::invalid_argument(
        "--num-blocks " + std::to_string(config->num_blocks) + " (one is the null block) cannot " +
        "hold one request of --max-model-len " + std::to_string(config->max_model_len) +
        ", which needs " + std::to_string(per_request) + " blocks of " +
        std::to_string(config->block_size) + " tokens; raise --num-blocks to " +
        std::to_string(per_request + kNullBlock) + " or lower --max-model-len to " +
        std::to_string(kv_cache_config.max_tokens_held(config->num_blocks - kNullBlock,
                                                       config->max_model_len,
                                                       config->max_num_batched_tokens)));
  }
  return config->validate();
}

Status resolve_device_cache_size(const KVCacheConfig& kv_cache_config, int64_t bytes_per_block,
                                 int64_t cache_bytes, EngineConfig* config) {
  if (config->num_blocks == 0) {
    constexpr int64_t kNullBlock = 1;
    const int64_t needed =
        kv_cache_config.max_blocks_held(config->max_model_len, config->max_num_batched_tokens);
    const int64_t blocks = cache_bytes / bytes_per_block;
    if (blocks - kNullBlock < needed) {
      return Status::resource_exhausted(
          "device memory leaves " + std::to_string(cache_bytes >> 20) + " MiB for " +
          std::to_string(blocks) + " cache blocks; one request of --max-model-len " +
          std::to_string(config->max_model_len) + " needs " + std::to_string(needed) +
          " and the null block; lower --max-model-len to " +
          std::to_string(kv_cache_config.max_tokens_held(std::max<int64_t>(blocks - kNullBlock, 0),
                                                         config->max_model_len,
                                                         config->max_num_batched_tokens)) +
          ", lower --max-num-batched-tokens, or raise --gpu-memory-utilization (" +
          std::to_string(config->gpu_memory_utilization).substr(0, 4) + ")");
    }
    config->num_blocks = static_cast<int32_t>(std::min<int64_t>(blocks, kMaxNumBlocks));
  }
  return resolve_cache_size(kv_cache_config, bytes_per_block, 0, config);
}

}  // namespace pinfer
