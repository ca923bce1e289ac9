// Runs the scenario files (tests/scenarios/scheduler/README.md), and replays the recorded hazards.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "scheduler/replay.h"

namespace pinfer {
namespace {

using Json = nlohmann::json;

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(PINFER_TEST_DIR "/" + folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of an object only the keys that expected names are compared.
void expect_matches(const Json& expected, const Json& got, const std::string& where) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      expect_matches(value, got.value(key, Json()), where + "." + key);
    }
  } else if (expected.is_array() && got.is_array() && expected.size() == got.size()) {
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_matches(expected[i], got[i], where + "[" + std::to_string(i) + "]");
    }
  } else {
    EXPECT_EQ(expected, got) << where;
  }
}

TEST(ScenarioTest, AllHold) {
  const auto paths = files_in("scenarios/scheduler");
  EXPECT_GE(paths.size(), 10U);
  for (const auto& path : paths) {
    SCOPED_TRACE(path.filename().string());
    const std::string text = read(path);
    const Json scenario = Json::parse(text);
    const Json result = Json::parse(replay_trace_json(text));
    ASSERT_FALSE(result.contains("error")) << result;
    for (const Json& expected : scenario.at("expect")) {
      const Json& step = result.at("steps").at(expected.at("step").get<size_t>());
      expect_matches(expected, step, "step " + expected["step"].dump());
    }
    expect_matches(scenario.value("expect_final", Json::object()), result, "final");
  }
}

// The recorded decisions read cache slots that were never written, from this step on. Ours part
// from them there: fewer tokens are taken from the cache. (The pytest twin of this test simulates
// the cache's contents.)
TEST(HazardTest, WithdrawnChunksAreNotFound) {
  for (const auto& path : files_in("data/scheduler_hazard")) {
    SCOPED_TRACE(path.filename().string());
    const std::string text = read(path);
    const Json trace = Json::parse(text);
    const Json result = Json::parse(replay_trace_json(text));
    const auto bad_step = trace.at("kv_hazard_steps").at(0).get<size_t>();
    for (size_t step = 0; step < bad_step; ++step) {
      EXPECT_EQ(trace["steps"][step], result["steps"][step]);
    }
    const int recorded_hit = trace["steps"][bad_step]["num_cached_tokens"]["r0"];
    const int hit = result["steps"][bad_step]["num_cached_tokens"]["r0"];
    EXPECT_EQ(hit, recorded_hit - 16) << "one block less";
  }
}

TEST(ReplayTest, BadInputIsAnError) {
  const std::string config = R"("config": {"num_blocks": 4, "max_model_len": 16})";
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), "{" + config + "}",
        "{" + config + R"(, "requests": [{}], "max_steps": 1})",
        std::string(R"({"config": {"num_blocks": 1, "max_model_len": 16}, "requests": [],
                        "max_steps": 1})"),
        std::string(R"({"config": {"num_blocks": 4, "max_model_len": 16, "policy": "lifo"},
                        "requests": [], "max_steps": 1})")}) {
    EXPECT_TRUE(Json::parse(replay_trace_json(bad)).contains("error")) << bad;
  }
  EXPECT_FALSE(Json::parse(replay_trace_json("{" + config + R"(, "requests": [], "max_steps": 1})"))
                   .contains("error"));
}

}  // namespace
}  // namespace pinfer
