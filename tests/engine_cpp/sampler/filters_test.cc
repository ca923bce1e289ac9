// Each filter against a plain version of its definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "sampler/candidates.h"
#include "sampler/exp_weight.h"
#include "sampler/min_p.h"
#include "sampler/top_k.h"
#include "sampler/top_p.h"

namespace pinfer {
namespace {

// Rounded to quarters, so that many are equal.
std::vector<float> random_logits(size_t num, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> logits(num);
  for (float& logit : logits) {
    logit = 0.25F * static_cast<float>(static_cast<int>(generator() % 41) - 30);
  }
  return logits;
}

Candidates make_candidates(const std::vector<float>& logits, double temperature = 1.0) {
  Candidates candidates;
  candidates.resize(logits.size());
  std::iota(candidates.token_ids.begin(), candidates.token_ids.end(), 0);
  candidates.logits = logits;
  const float max = *std::max_element(logits.begin(), logits.end());
  exp_weights(logits.data(), logits.size(), max, temperature, candidates.weights.data());
  return candidates;
}

TEST(TopKTest, KthGreatest) {
  std::vector<float> scratch;
  for (const size_t num : {1, 2, 15, 16, 17, 1000, 5000}) {
    const std::vector<float> logits = random_logits(num, static_cast<uint32_t>(num));
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<float>());
    for (const size_t k : {size_t{1}, size_t{2}, size_t{50}, size_t{700}, num - 1, num}) {
      if (k < 1 || k > num) continue;
      EXPECT_EQ(kth_greatest(logits, k, scratch), sorted[k - 1]) << num << " " << k;
    }
  }
}

TEST(TopKTest, RisingAndFallingLogits) {
  std::vector<float> scratch;
  std::vector<float> logits(10000);
  std::iota(logits.begin(), logits.end(), 0.0F);
  EXPECT_EQ(kth_greatest(logits, 40, scratch), 9960.0F);
  std::reverse(logits.begin(), logits.end());
  EXPECT_EQ(kth_greatest(logits, 40, scratch), 9960.0F);
  logits.assign(10000, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(kth_greatest(logits, 40, scratch), logits[0]);
}

TEST(TopPTest, KeepsTheFewestThatReachIt) {
  TopPScratch scratch;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const std::vector<float> logits = random_logits(1 + seed * 3, seed);
    for (const double top_p : {1e-9, 0.1, 0.5, 0.9, 0.99, 0.999999}) {
      const Candidates all = make_candidates(logits, 0.5 + seed % 3);
      std::vector<size_t> order(all.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return all.logits[a] > all.logits[b]; });
      const auto total =
          static_cast<double>(std::accumulate(all.weights.begin(), all.weights.end(), int64_t{0}));
      std::vector<int32_t> expected;
      int64_t sum_before = 0;
      for (const size_t i : order) {
        if (static_cast<double>(sum_before) >= top_p * total) break;
        expected.push_back(static_cast<int32_t>(i));
        sum_before += all.weights[i];
      }
      std::sort(expected.begin(), expected.end());
      Candidates kept = all;
      apply_top_p(top_p, kept, scratch);
      EXPECT_EQ(kept.token_ids, expected) << seed << " " << top_p;
      EXPECT_FALSE(kept.token_ids.empty());
    }
  }
}

TEST(MinPTest, KeepsWhatIsLikelyEnough) {
  const std::vector<float> logits = {0.0F, -1.0F, -2.0F, 0.0F, -30.0F};
  for (const auto& [min_p, expected] :
       std::vector<std::pair<double, std::vector<int32_t>>>{{1.0, {0, 3}},
                                                            {0.37, {0, 3}},
                                                            {0.36, {0, 1, 3}},  // exp(-1) = 0.3679
                                                            {0.1, {0, 1, 2, 3}},
                                                            {1e-300, {0, 1, 2, 3}},
                                                            {0.0, {0, 1, 2, 3, 4}}}) {
    Candidates candidates = make_candidates(logits);
    apply_min_p(min_p, candidates);
    EXPECT_EQ(candidates.token_ids, expected) << min_p;
  }
}

}  // namespace
}  // namespace pinfer
