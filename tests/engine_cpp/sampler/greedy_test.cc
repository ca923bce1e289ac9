#include "sampler/greedy.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace pinfer {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Around the vector width (8), the chains (32) and the parts (4096).
const std::vector<size_t> kSizes = {1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 4095, 4096, 4097, 9000};

std::vector<float> falling(size_t num) {
  std::vector<float> logits(num);
  for (size_t i = 0; i < num; ++i) logits[i] = -1.0F - static_cast<float>(i);
  return logits;
}

TEST(BestTokenTest, FindsTheBestAtEveryPlace) {
  for (const size_t num : kSizes) {
    for (size_t place = 0; place < num; place += num > 100 ? 97 : 1) {
      std::vector<float> logits = falling(num);
      logits[place] = 5.0F;
      const auto best = best_token(logits);
      ASSERT_TRUE(best.has_value());
      EXPECT_EQ(best->token_id, static_cast<int32_t>(place)) << num;
      EXPECT_EQ(best->logit, 5.0F);
    }
  }
}

TEST(BestTokenTest, LowestIdOfEquals) {
  for (const size_t num : kSizes) {
    EXPECT_EQ(best_token(std::vector<float>(num, 1.5F))->token_id, 0);
    std::vector<float> logits = falling(num);
    logits[num - 1] = logits[num / 2] = 3.0F;
    EXPECT_EQ(best_token(logits)->token_id, static_cast<int32_t>(num / 2)) << num;
  }
  EXPECT_EQ(best_token(std::vector<float>{-1.0F, -0.0F, 0.0F})->token_id, 1);
}

TEST(BestTokenTest, NotFinite) {
  for (const size_t num : kSizes) {
    for (const float bad : {kNan, -kNan, kInfinity}) {
      for (size_t place = 0; place < num; place += num > 100 ? 97 : 1) {
        std::vector<float> logits = falling(num);
        logits[place] = bad;
        EXPECT_FALSE(best_token(logits).has_value()) << num << " " << place;
      }
    }
    EXPECT_FALSE(best_token(std::vector<float>(num, -kInfinity)).has_value());
    std::vector<float> one(num, -kInfinity);
    one[num - 1] = -3e38F;
    EXPECT_EQ(best_token(one)->token_id, static_cast<int32_t>(num - 1));
  }
  EXPECT_FALSE(best_token({}).has_value());
}

}  // namespace
}  // namespace pinfer
