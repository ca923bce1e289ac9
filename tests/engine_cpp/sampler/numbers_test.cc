// The random stream and the exponential, which both twins compute alike to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "sampler/exp_weight.h"
#include "sampler/random_stream.h"

namespace pinfer {
namespace {

// Random123's known answer for a zero key and counter, then values of the Python twin.
TEST(RandomStreamTest, KnownAnswers) {
  EXPECT_EQ(random_bits(0, 0, 0), 0xE169C58D6627E8D5U);
  EXPECT_EQ(random_bits(7, 0, 0), 0xC009F9DCF4607A2DU);
  EXPECT_EQ(random_bits(7, 1, 0), 0x249EF5F42EC4F55DU);
  EXPECT_EQ(random_bits(~uint64_t{0}, 3, 1000), 0xC1AFEFCB518A76F3U);
}

TEST(RandomStreamTest, EveryPartOfTheCounterCounts) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63}) {
    for (uint32_t choice = 0; choice < 8; ++choice) {
      for (uint32_t position = 0; position < 32; ++position) {
        seen.insert(random_bits(seed, choice, position));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U * 8 * 32);
}

TEST(RandomStreamTest, BitsAreUniform) {
  constexpr int kNum = 20000;
  int counts[64] = {};
  for (int i = 0; i < kNum; ++i) {
    const uint64_t bits = random_bits(42, 0, static_cast<uint32_t>(i));
    for (int bit = 0; bit < 64; ++bit) counts[bit] += (bits >> bit) & 1;
  }
  // Five standard deviations.
  for (const int count : counts) EXPECT_NEAR(count, kNum / 2, 5 * std::sqrt(kNum) / 2);
}

TEST(ExpTest, RelativeError) {
  EXPECT_EQ(exp_of(0.0), 1.0);
  for (int i = 0; i <= 700000; ++i) {
    const double x = -0.001 * i;
    EXPECT_LT(std::abs(exp_of(x) / std::exp(x) - 1.0), 1e-14) << x;
  }
}

TEST(ExpTest, WeightsRoundTheExponential) {
  constexpr double kOne = 1099511627776.0;  // 2^40
  std::vector<float> logits;
  for (int i = 0; i < 3001; ++i) logits.push_back(-0.0123F * static_cast<float>(i));
  logits.push_back(-std::numeric_limits<float>::infinity());
  std::vector<int64_t> weights(logits.size());
  for (const double temperature : {0.5, 1.0, 3.0}) {
    exp_weights(logits.data(), logits.size(), 0.0F, temperature, weights.data());
    EXPECT_EQ(weights[0], int64_t{1} << kWeightBits);
    EXPECT_EQ(weights.back(), 0);
    for (size_t i = 0; i + 1 < logits.size(); ++i) {
      const double exact = kOne * std::exp(static_cast<double>(logits[i]) / temperature);
      EXPECT_NEAR(static_cast<double>(weights[i]), exact, 0.5 + 1e-13 * exact) << i;
    }
  }
}

TEST(ExpTest, AnyLengthGivesTheSameWeights) {
  std::vector<float> logits;
  for (int i = 0; i < 40; ++i) logits.push_back(-0.37F * static_cast<float>(i % 11));
  std::vector<int64_t> whole(logits.size());
  exp_weights(logits.data(), logits.size(), 0.0F, 1.3, whole.data());
  for (size_t num = 0; num <= logits.size(); ++num) {
    std::vector<int64_t> part(num + 1, -1);
    exp_weights(logits.data(), num, 0.0F, 1.3, part.data());
    for (size_t i = 0; i < num; ++i) EXPECT_EQ(part[i], whole[i]);
    EXPECT_EQ(part[num], -1) << "nothing is written beyond";
  }
}

TEST(ExpTest, Sum) {
  for (const size_t num : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 1000}) {
    std::vector<float> logits;
    double exact = 0.0;
    for (size_t i = 0; i < num; ++i) {
      logits.push_back(-0.01F * static_cast<float>((i * 37) % 1013));
      exact += std::exp(static_cast<double>(logits.back()));
    }
    EXPECT_NEAR(exp_sum(logits.data(), num, 0.0F) / exact, 1.0, 1e-13) << num;
  }
}

}  // namespace
}  // namespace pinfer
