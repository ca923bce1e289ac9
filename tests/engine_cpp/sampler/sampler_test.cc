#include "sampler/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace pinfer {
namespace {

SamplingParams seeded(int64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

// The next num tokens of a fresh request.
std::vector<int32_t> draw(Sampler& sampler, const std::vector<float>& logits,
                          const SamplingParams& params, int32_t choice_index, int num) {
  Request request("r0", {0}, params, {.choice_index = choice_index});
  for (int i = 0; i < num; ++i) {
    request.append_output_token_id(sampler.sample(logits, request).token_id);
  }
  const auto output = request.output_token_ids();
  return {output.begin(), output.end()};
}

const std::vector<float> kLogits = {0.5F, 2.0F, 1.0F, -1.0F, 1.5F};

TEST(SamplerTest, FollowsTheDistribution) {
  Sampler sampler;
  constexpr int kNum = 40000;
  for (const double temperature : {0.7, 1.0, 2.0}) {
    SamplingParams params = seeded(11);
    params.temperature = temperature;
    std::vector<int> counts(kLogits.size());
    for (const int32_t id : draw(sampler, kLogits, params, 0, kNum)) {
      ++counts[static_cast<size_t>(id)];
    }
    double sum = 0.0;
    for (const float logit : kLogits) sum += std::exp(logit / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(kLogits[i] / temperature) / sum;
      // Five standard deviations.
      EXPECT_NEAR(counts[i], kNum * p, 5 * std::sqrt(kNum * p * (1 - p))) << temperature;
    }
  }
}

TEST(SamplerTest, FilteredTokensNeverCome) {
  Sampler sampler;
  SamplingParams params = seeded(3);
  params.temperature = 5.0;
  params.top_k = 2;
  for (const int32_t id : draw(sampler, kLogits, params, 0, 300)) EXPECT_TRUE(id == 1 || id == 4);
  params.top_k = 0;
  params.top_p = 0.5;  // at temperature 5: 0.25, 0.23, 0.21, ...
  std::set<int32_t> seen;
  for (const int32_t id : draw(sampler, kLogits, params, 0, 300)) seen.insert(id);
  EXPECT_EQ(seen, (std::set<int32_t>{1, 2, 4}));
}

TEST(SamplerTest, StreamsDependOnSeedAndChoiceOnly) {
  Sampler sampler, busy;
  const auto alone = draw(sampler, kLogits, seeded(7), 0, 50);
  draw(busy, std::vector<float>(1000, 0.5F), seeded(1), 0, 3);
  EXPECT_EQ(draw(busy, kLogits, seeded(7), 0, 50), alone) << "what ran before leaves no trace";
  EXPECT_NE(draw(sampler, kLogits, seeded(8), 0, 50), alone);
  std::set<std::vector<int32_t>> choices;
  for (int32_t choice = 0; choice < 4; ++choice) {
    choices.insert(draw(sampler, kLogits, seeded(7), choice, 50));
  }
  EXPECT_EQ(choices.size(), 4U);
}

TEST(SamplerTest, WithoutASeedRequestsDiffer) {
  Sampler sampler;
  std::set<std::vector<int32_t>> outputs;
  for (int i = 0; i < 20; ++i) outputs.insert(draw(sampler, kLogits, SamplingParams(), 0, 50));
  EXPECT_EQ(outputs.size(), 20U);
}

TEST(SamplerTest, AResumedRequestGoesOnInItsStream) {
  Sampler sampler;
  const auto whole = draw(sampler, kLogits, seeded(7), 0, 20);
  Request resumed("r0", {0}, seeded(7));
  for (int i = 0; i < 10; ++i) resumed.append_output_token_id(whole[static_cast<size_t>(i)]);
  EXPECT_EQ(sampler.sample(kLogits, resumed).token_id, whole[10]);
}

TEST(SamplerTest, LogitsAreLeftAsTheyAre) {
  Sampler sampler({0});
  SamplingParams params = seeded(7);
  params.logit_bias = {{1, 5.0}};
  params.repetition_penalty = 1.5;
  std::vector<float> logits = kLogits;
  draw(sampler, logits, params, 0, 10);
  EXPECT_EQ(logits, kLogits);
}

TEST(SamplerTest, FailedRequestsDoNotDisturbOthers) {
  Sampler sampler;
  SamplingParams params = seeded(7);
  params.presence_penalty = 1.0;
  const auto alone = draw(sampler, kLogits, params, 0, 20);
  std::vector<float> bad = kLogits;
  bad[2] = std::numeric_limits<float>::quiet_NaN();
  const Request failing("bad", {0}, params);
  const SampledToken sampled = sampler.sample(bad, failing);
  EXPECT_TRUE(sampled.failed);
  EXPECT_EQ(sampled.request_id, "bad");
  EXPECT_EQ(draw(sampler, kLogits, params, 0, 20), alone);
}

TEST(SamplerTest, ChangingVocabularySizes) {
  Sampler sampler;
  SamplingParams params = seeded(7);
  params.frequency_penalty = 0.5;
  for (const size_t size : {5, 50, 3, 200}) {
    const std::vector<float> logits(size, 1.0F);
    for (const int32_t id : draw(sampler, logits, params, 0, 30)) {
      EXPECT_LT(id, static_cast<int32_t>(size));
    }
  }
}

}  // namespace
}  // namespace pinfer
