#include "engine/pooler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/embedding_text.h"

namespace pinfer {
namespace {

constexpr PoolingParams kRaw{PoolingMode::MEAN, false, 0};

HiddenStates rows_of(const std::vector<float>& values, int32_t hidden_size) {
  return {values.data(), static_cast<int32_t>(values.size()) / hidden_size, hidden_size};
}

TEST(Pooler, MeansDoNotDependOnTheSteps) {
  const std::vector<float> all = {0.1F, 2, 0.3F, 4, 0.7F, -6};
  Pooler pooler;
  pooler.add("whole", rows_of(all, 2));
  for (size_t i = 0; i < all.size(); i += 2) pooler.add("parts", rows_of({all[i], all[i + 1]}, 2));
  const Embedding whole = pooler.take("whole", kRaw);
  EXPECT_FALSE(whole.failed);
  EXPECT_EQ(whole.request_id, "whole");
  EXPECT_EQ(pooler.take("parts", kRaw).values, whole.values);
  EXPECT_NEAR(whole.values[0], 1.1 / 3, 1e-7);
  EXPECT_EQ(whole.values[1], 0.0F);
}

TEST(Pooler, OneRowStaysAsItIs) {
  const std::vector<float> row = {0.1F, -3.7F, 1e-20F};
  Pooler pooler;
  pooler.add("a", rows_of(row, 3));
  EXPECT_EQ(pooler.take("a", kRaw).values, row);
}

TEST(Pooler, CutsThenNormalises) {
  Pooler pooler;
  pooler.add("a", rows_of({3, 4, 12}, 3));
  EXPECT_EQ(pooler.take("a", {PoolingMode::LAST, true, 2}).values,
            (std::vector<float>{0.6F, 0.8F}));
  pooler.add("zero", rows_of({0, 0}, 2));
  EXPECT_EQ(pooler.take("zero", {}).values, (std::vector<float>{0, 0}));
}

TEST(Pooler, FailsWithoutRowsAndOnWhatIsNotFinite) {
  Pooler pooler;
  EXPECT_TRUE(pooler.take("unknown", {}).failed);
  pooler.add("nan", rows_of({1, std::numeric_limits<float>::quiet_NaN()}, 2));
  EXPECT_TRUE(pooler.take("nan", {}).failed);
  pooler.add("gone", rows_of({1, 2}, 2));
  const std::string ids[] = {"gone", "unknown"};
  pooler.forget(ids);
  EXPECT_TRUE(pooler.take("gone", {}).failed);
}

TEST(EmbeddingText, StandsBehindThePrompt) {
  PoolingEntry pooling;
  EXPECT_EQ(embedding_text(pooling, " \t a b\n", std::nullopt).value(), " \t a b\n");
  pooling.prompts = {{"query", " Q: "}, {"document", ""}};
  EXPECT_EQ(embedding_text(pooling, " a ", std::nullopt).value(), " a ");
  EXPECT_EQ(embedding_text(pooling, " a ", "query").value(), " Q:  a ");
  pooling.default_prompt_name = "query";
  EXPECT_EQ(embedding_text(pooling, "a", std::nullopt).value(), " Q: a");
  EXPECT_EQ(embedding_text(pooling, "a", "").value(), "a");
  EXPECT_EQ(embedding_text(pooling, "a", "document").value(), "a");
  const Result<std::string> refused = embedding_text(pooling, "a", "other");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "prompt_name: the model has no prompt other; it has document, query");
}

}  // namespace
}  // namespace pinfer
