#include "core/sampling_params.h"

#include <gtest/gtest.h>

#include <limits>

namespace pinfer {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The message of the refusal after change, "" if it is accepted.
template <typename Change>
std::string refusal(Change change) {
  SamplingParams params;
  change(params);
  const Status status = params.validate();
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::INVALID_ARGUMENT);
  return status.message();
}

TEST(SamplingParamsTest, DefaultsAreValid) {
  EXPECT_EQ(refusal([](SamplingParams&) {}), "");
}

TEST(SamplingParamsTest, Temperature) {
  for (const double fine : {0.0, 1e-300, 1e-12, 1e-5, 0.01, 2.0, 100.0}) {
    EXPECT_EQ(refusal([&](SamplingParams& p) { p.temperature = fine; }), "");
  }
  for (const double bad : {-1.0, -1e-9, kNan, kInfinity, -kInfinity}) {
    EXPECT_NE(refusal([&](SamplingParams& p) { p.temperature = bad; }), "") << bad;
  }
  EXPECT_EQ(refusal([](SamplingParams& p) { p.temperature = -1.0; }),
            "temperature must be a finite number >= 0, got -1");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.temperature = kNan; }),
            "temperature must be a finite number >= 0, got nan");
}

TEST(SamplingParamsTest, GreedyUpToItsBound) {
  SamplingParams params;
  EXPECT_FALSE(params.is_greedy());
  for (const double greedy : {0.0, 1e-300, 1e-5}) {
    params.temperature = greedy;
    EXPECT_TRUE(params.is_greedy()) << greedy;
  }
  params.temperature = 1.1e-5;
  EXPECT_FALSE(params.is_greedy());
}

TEST(SamplingParamsTest, Filters) {
  for (const double bad : {0.0, -0.1, 1.5, kNan}) {
    EXPECT_NE(refusal([&](SamplingParams& p) { p.top_p = bad; }), "") << bad;
  }
  EXPECT_EQ(refusal([](SamplingParams& p) { p.top_p = 1e-9; }), "");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.top_p = 1.5; }), "top_p must be in (0, 1], got 1.5");
  for (const int32_t fine : {-1, 0, 1, std::numeric_limits<int32_t>::max()}) {
    EXPECT_EQ(refusal([&](SamplingParams& p) { p.top_k = fine; }), "");
  }
  EXPECT_NE(refusal([](SamplingParams& p) { p.top_k = -2; }), "");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.min_p = 1.0; }), "");
  for (const double bad : {-0.1, 1.1, kNan}) {
    EXPECT_NE(refusal([&](SamplingParams& p) { p.min_p = bad; }), "") << bad;
  }
}

TEST(SamplingParamsTest, Penalties) {
  for (const double fine : {-2.0, 0.0, 2.0}) {
    EXPECT_EQ(refusal([&](SamplingParams& p) { p.presence_penalty = fine; }), "");
    EXPECT_EQ(refusal([&](SamplingParams& p) { p.frequency_penalty = fine; }), "");
  }
  for (const double bad : {-2.1, 2.1, kNan}) {
    EXPECT_NE(refusal([&](SamplingParams& p) { p.presence_penalty = bad; }), "") << bad;
    EXPECT_NE(refusal([&](SamplingParams& p) { p.frequency_penalty = bad; }), "") << bad;
  }
  for (const double bad : {0.0, -1.0, kNan, kInfinity}) {
    EXPECT_NE(refusal([&](SamplingParams& p) { p.repetition_penalty = bad; }), "") << bad;
  }
}

TEST(SamplingParamsTest, BiasAndAllowedIds) {
  EXPECT_EQ(refusal([](SamplingParams& p) { p.logit_bias = {{5, 100.0}, {6, -100.0}}; }), "");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.logit_bias = {{5, 1000.0}}; }),
            "logit_bias[5] must be in [-100, 100], got 1000");
  EXPECT_NE(refusal([](SamplingParams& p) { p.logit_bias = {{5, kNan}}; }), "");
  EXPECT_NE(refusal([](SamplingParams& p) { p.logit_bias = {{-1, 1.0}}; }), "");
  EXPECT_NE(refusal([](SamplingParams& p) { p.allowed_token_ids = {3, -1}; }), "");

  SamplingParams params;
  params.logit_bias = {{9, 1.0}};
  params.allowed_token_ids = {3};
  EXPECT_TRUE(params.validate_token_ids(10).ok());
  EXPECT_EQ(params.validate_token_ids(9).message(), "logit_bias must be a token id below 9, got 9");
  params.logit_bias.clear();
  EXPECT_FALSE(params.validate_token_ids(3).ok());
}

TEST(SamplingParamsTest, EndRules) {
  EXPECT_EQ(refusal([](SamplingParams& p) { p.max_tokens = 0; }),
            "max_tokens must be in [1, 2147483647], got 0");
  EXPECT_NE(refusal([](SamplingParams& p) { p.min_tokens = -1; }), "");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.min_tokens = 17; }),
            "min_tokens must be in [0, 16], got 17");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.min_tokens = 16; }), "");
  EXPECT_NE(refusal([](SamplingParams& p) { p.stop_token_ids = {-5}; }), "");
  EXPECT_EQ(refusal([](SamplingParams& p) { p.stop = {"a", ""}; }),
            "stop must be a list of non-empty strings, got \"\"");
}

}  // namespace
}  // namespace pinfer
