// The engine's settings. One field list; command-line flags are these names in kebab case, and the
// Python twin (runtime/core/engine_config.py) has the same names, types and defaults.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/status.h"

namespace pinfer {

enum class SchedulingPolicy {
  FCFS,      // first come, first served
  PRIORITY,  // smaller priority first, then earlier arrival
};

enum class Provider {
  NATIVE,  // our own tensor handles, no dependency
  TORCH,   // libtorch
};

enum class HugePages {
  AUTO,  // weights are moved into huge pages where there is room for them
  OFF,   // they stay in the file's pages, which processes share
};

// What the pool of blocks can be asked for: its lists are made at start.
inline constexpr int32_t kMaxNumBlocks = 1 << 25;

// A plain value: validated once, then never changed.
struct EngineConfig {
  int32_t max_model_len = 0;              // tokens, prompt and output; 0 = the model's own limit
  int32_t max_num_seqs = 256;             // requests running at once
  int32_t max_num_batched_tokens = 2048;  // tokens computed in one step, >= max_num_seqs
  int32_t num_blocks = 0;   // cache blocks, the null block included; 0 = sized from free memory
  int32_t block_size = 16;  // tokens
  int32_t long_prefill_token_threshold = 0;  // cap of one request's tokens per step; 0 = off
  SchedulingPolicy scheduling_policy = SchedulingPolicy::FCFS;
  bool enable_prefix_caching = true;
  // Admit a request only when its whole prompt fits the free blocks.
  bool scheduler_reserve_full_isl = true;
  double watermark = 0.0;  // [0, 1): share of blocks kept free at admission while others run
  int32_t threads = 0;     // compute threads; 0 = what cgroup quota and affinity allow
  std::string cpus;        // that compute threads are bound to: "0-3,8", "node:0"; "" = to none
  Provider provider = Provider::NATIVE;
  HugePages huge_pages = HugePages::AUTO;
  double gpu_memory_utilization = 0.9;  // (0, 1]: share of a GPU's memory that the engine may take
  int32_t max_cuda_graph_seqs = 256;    // largest decode step that a GPU records; 0 = none
  bool async_scheduling = false;  // schedule the next step while one runs: the device waits less

  // INVALID_ARGUMENT naming the field, the range and what was found. 0 is accepted where it means
  // "choose". How many blocks a request needs depends on the model (core/kv_cache_config.h), which
  // CPUs there are on the machine (csrc/threads/cpu_list.h).
  Status validate() const;

  // The field list: visit(name, pointer to member) for each field in order.
  template <typename Visitor>
  static void for_each_field(Visitor&& visit) {
    visit("max_model_len", &EngineConfig::max_model_len);
    visit("max_num_seqs", &EngineConfig::max_num_seqs);
    visit("max_num_batched_tokens", &EngineConfig::max_num_batched_tokens);
    visit("num_blocks", &EngineConfig::num_blocks);
    visit("block_size", &EngineConfig::block_size);
    visit("long_prefill_token_threshold", &EngineConfig::long_prefill_token_threshold);
    visit("scheduling_policy", &EngineConfig::scheduling_policy);
    visit("enable_prefix_caching", &EngineConfig::enable_prefix_caching);
    visit("scheduler_reserve_full_isl", &EngineConfig::scheduler_reserve_full_isl);
    visit("watermark", &EngineConfig::watermark);
    visit("threads", &EngineConfig::threads);
    visit("cpus", &EngineConfig::cpus);
    visit("provider", &EngineConfig::provider);
    visit("huge_pages", &EngineConfig::huge_pages);
    visit("gpu_memory_utilization", &EngineConfig::gpu_memory_utilization);
    visit("max_cuda_graph_seqs", &EngineConfig::max_cuda_graph_seqs);
    visit("async_scheduling", &EngineConfig::async_scheduling);
  }
};

// Names of an enumeration's values, in the order of the values, as flags and JSON spell them.
template <typename Enum>
inline constexpr std::array<std::string_view, 0> kEnumNames;
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<SchedulingPolicy> = {"fcfs",
                                                                                 "priority"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<Provider> = {"native", "torch"};
template <>
inline constexpr std::array<std::string_view, 2> kEnumNames<HugePages> = {"auto", "off"};

template <typename Enum>
std::string_view enum_name(Enum value) {
  return kEnumNames<Enum>[static_cast<size_t>(value)];
}

// None if no value has this name.
template <typename Enum>
std::optional<Enum> parse_enum(std::string_view name) {
  for (size_t i = 0; i < kEnumNames<Enum>.size(); ++i) {
    if (kEnumNames<Enum>[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// Both configurations as JSON: {"EngineConfig": [{"name", "type", "default", "values" of an enum},
// ...], "SamplingParams": [...]}, printed by `pinfer describe --json`.
std::string describe_configs_json();

}  // namespace pinfer
