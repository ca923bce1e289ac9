// Runs the files of tests/scenarios/sampler; see the README there.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "sampler/sampler.h"

namespace pinfer {
namespace {

using Json = nlohmann::json;

float read_logit(const Json& json) {
  return json.is_string() ? std::stof(json.get<std::string>())
                          : static_cast<float>(json.get<double>());
}

std::vector<float> read_logits(const Json& test) {
  std::vector<float> logits;
  if (test.contains("pattern")) {
    const int64_t size = test["pattern"][0], seed = test["pattern"][1];
    for (int64_t i = 0; i < size; ++i) {
      const int64_t value = (i * 7919 + seed) % 10007;
      logits.push_back(static_cast<float>(static_cast<double>(value) / 1000 - 5));
    }
  } else {
    for (const Json& logit : test.at("logits")) logits.push_back(read_logit(logit));
  }
  return logits;
}

// One reader for every field, through the field list.
struct ParamsReader {
  const Json& json;
  SamplingParams params = {};

  template <typename T>
  void operator()(const char* name, T SamplingParams::* member) {
    if (json.contains(name)) params.*member = json[name].template get<T>();
  }
  template <typename Int>
  void operator()(const char* name, std::optional<Int> SamplingParams::* member) {
    if (json.contains(name)) params.*member = json[name].template get<Int>();
  }
  void operator()(const char* name, std::map<int32_t, double> SamplingParams::* member) {
    if (!json.contains(name)) return;
    for (const auto& [id, bias] : json[name].items()) (params.*member)[std::stoi(id)] = bias;
  }
};

TEST(SamplerScenarioTest, AllHold) {
  size_t num_cases = 0;
  for (const char* name : {"rules.json", "streams.json"}) {
    std::ifstream file(PINFER_TEST_DIR "/scenarios/sampler/" + std::string(name));
    for (const Json& test : Json::parse(file)) {
      SCOPED_TRACE(test.at("name"));
      ++num_cases;
      ParamsReader reader{test.at("params")};
      SamplingParams::for_each_field(reader);
      const std::vector<int32_t> none;
      Request request("r0", test.value("prompt", std::vector<int32_t>{0}), reader.params,
                      {.eos_token_ids = test.value("eos_token_ids", none),
                       .choice_index = test.value("choice_index", 0)});
      for (const int32_t id : test.value("output", none)) request.append_output_token_id(id);
      Sampler sampler(test.value("masked_token_ids", none));
      const std::vector<float> logits = read_logits(test);
      if (test.value("failed", false)) {
        EXPECT_TRUE(sampler.sample(logits, request).failed);
        continue;
      }
      for (const int32_t expected : test.at("token_ids")) {
        const SampledToken sampled = sampler.sample(logits, request);
        EXPECT_FALSE(sampled.failed);
        ASSERT_EQ(sampled.token_id, expected) << "output " << request.num_output_tokens();
        request.append_output_token_id(sampled.token_id);
      }
    }
  }
  EXPECT_GE(num_cases, 50U);
}

}  // namespace
}  // namespace pinfer
