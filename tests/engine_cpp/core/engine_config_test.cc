#include "core/engine_config.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace pinfer {
namespace {

template <typename Change>
std::string refusal(Change change) {
  EngineConfig config;
  change(config);
  return config.validate().message();
}

TEST(EngineConfigTest, DefaultsAreValid) {
  EXPECT_EQ(refusal([](EngineConfig&) {}), "");
}

TEST(EngineConfigTest, NamesFieldRangeAndValue) {
  EXPECT_EQ(refusal([](EngineConfig& c) { c.max_num_seqs = 0; }),
            "max_num_seqs must be in [1, 2147483647], got 0");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.block_size = 257; }),
            "block_size must be in [1, 256], got 257");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.watermark = 1.0; }),
            "watermark must be in [0, 1), got 1");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.gpu_memory_utilization = 0.0; }),
            "gpu_memory_utilization must be in (0, 1], got 0");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.max_cuda_graph_seqs = -1; }),
            "max_cuda_graph_seqs must be in [0, 2147483647], got -1");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.num_blocks = kMaxNumBlocks + 1; }),
            "num_blocks must be in [0, 33554432], got 33554433");
  EXPECT_EQ(refusal([](EngineConfig& c) { c.num_blocks = 1; }),
            "num_blocks must be at least 2 (one is the null block), got 1");
}

TEST(EngineConfigTest, RefusesWhatIsOutOfRange) {
  EXPECT_NE(refusal([](EngineConfig& c) { c.max_model_len = -1; }), "");
  EXPECT_NE(refusal([](EngineConfig& c) { c.num_blocks = -1; }), "");
  EXPECT_NE(refusal([](EngineConfig& c) { c.block_size = 0; }), "");
  EXPECT_NE(refusal([](EngineConfig& c) { c.long_prefill_token_threshold = -1; }), "");
  EXPECT_NE(refusal([](EngineConfig& c) { c.threads = -1; }), "");
  EXPECT_NE(refusal([](EngineConfig& c) { c.watermark = -0.1; }), "");
  EXPECT_NE(
      refusal([](EngineConfig& c) { c.watermark = std::numeric_limits<double>::quiet_NaN(); }), "");
}

TEST(EngineConfigTest, EveryRunningRequestGetsAToken) {
  EXPECT_EQ(refusal([](EngineConfig& c) {
              c.max_num_seqs = 32;
              c.max_num_batched_tokens = 31;
            }),
            "max_num_batched_tokens must be in [32, 2147483647], got 31");
}

TEST(EngineConfigTest, EnumNames) {
  EXPECT_EQ(enum_name(SchedulingPolicy::FCFS), "fcfs");
  EXPECT_EQ(parse_enum<SchedulingPolicy>("priority"), SchedulingPolicy::PRIORITY);
  EXPECT_EQ(parse_enum<Provider>("torch"), Provider::TORCH);
  EXPECT_EQ(parse_enum<Provider>("Torch"), std::nullopt);
}

TEST(DescribeTest, ListsEveryFieldWithTypeAndDefault) {
  const auto json = nlohmann::json::parse(describe_configs_json());
  const auto field = [&](const char* config, const char* name) {
    for (const auto& entry : json.at(config)) {
      if (entry.at("name") == name) return entry;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(json.at("EngineConfig").size(), 17U);
  EXPECT_EQ(json.at("SamplingParams").size(), 18U);
  EXPECT_EQ(field("EngineConfig", "max_num_seqs"),
            nlohmann::json::parse(R"({"name": "max_num_seqs", "type": "int", "default": 256})"));
  EXPECT_EQ(field("EngineConfig", "scheduling_policy"), nlohmann::json::parse(R"(
      {"name": "scheduling_policy", "type": "enum", "default": "fcfs",
       "values": ["fcfs", "priority"]})"));
  EXPECT_EQ(field("SamplingParams", "seed"),
            nlohmann::json::parse(R"({"name": "seed", "type": "int or none", "default": null})"));
  EXPECT_EQ(field("SamplingParams", "logit_bias").at("default"), nlohmann::json::object());
  EXPECT_EQ(field("SamplingParams", "temperature").at("default"), 1.0);
}

}  // namespace
}  // namespace pinfer
