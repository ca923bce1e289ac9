#include "sampler/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LogprobsTest, NaturalLogSoftmaxOfTheRawLogits) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, 3.0F};
  const double log_sum = std::log(std::exp(1.0) + std::exp(2.0) + 2 * std::exp(3.0));
  const auto result = log_softmax_top(logits, 3, 0);
  ASSERT_TRUE(result.has_value());
  EXPECT_NEAR(result->chosen, 1.0 - log_sum, 1e-13);
  ASSERT_EQ(result->top.size(), 3U);
  EXPECT_EQ(result->top[0].first, 1) << "of equals the lowest id";
  EXPECT_EQ(result->top[1].first, 3);
  EXPECT_EQ(result->top[2].first, 2);
  EXPECT_NEAR(result->top[0].second, 3.0 - log_sum, 1e-13);
  EXPECT_EQ(result->top[0].second, result->top[1].second);
}

TEST(LogprobsTest, HowManyAreListed) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F};
  EXPECT_EQ(log_softmax_top(logits, 0, 0)->top.size(), 0U);
  EXPECT_EQ(log_softmax_top(logits, 5, 0)->top.size(), 3U);
  // Masked ids are not listed, but others take their place.
  const std::vector<int32_t> masked = {1};
  const auto result = log_softmax_top(logits, 1, 0, masked);
  ASSERT_EQ(result->top.size(), 1U);
  EXPECT_EQ(result->top[0].first, 2);
  EXPECT_EQ(result->chosen, log_softmax_top(logits, 0, 0)->chosen);
}

TEST(LogprobsTest, Infinities) {
  const std::vector<float> logits = {1.0F, -kInfinity};
  const auto result = log_softmax_top(logits, 2, 1);
  EXPECT_EQ(result->chosen, -static_cast<double>(kInfinity));
  EXPECT_EQ(result->top[0].second, 0.0);
  EXPECT_EQ(result->top[1].second, -static_cast<double>(kInfinity));
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(log_softmax_top(std::vector<float>{1.0F, bad}, 1, 0).has_value());
  }
}

TEST(LogprobsTest, LargeLogitsDoNotOverflow) {
  const auto result = log_softmax_top(std::vector<float>{3e38F, 3e38F, -3e38F}, 1, 0);
  EXPECT_NEAR(result->chosen, -std::log(2.0), 1e-13);
}

}  // namespace
}  // namespace pinfer
