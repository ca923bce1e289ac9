#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fake_executor.h"

namespace pinfer {
namespace {

constexpr int32_t kVocab = 32;

// The parameter: whether scheduling is asynchronous.
class EngineCoreTest : public testing::TestWithParam<bool> {
 protected:
  EngineCoreTest() {
    EngineConfig config;
    config.max_model_len = 128;
    config.num_blocks = 16;
    config.max_num_batched_tokens = 80;
    config.async_scheduling = GetParam();
    auto executor = std::make_unique<FakeExecutor>(kVocab);
    executor_ = executor.get();
    core_ = std::make_unique<EngineCore>(config, uniform_kv_cache_config(1, config.block_size),
                                         std::move(executor), Sampler());
  }

  void add(const std::string& id, std::vector<int32_t> prompt, int32_t max_tokens,
           SamplingParams params = {}) {
    params.temperature = 0;
    params.max_tokens = max_tokens;
    RequestOptions options;
    options.eos_token_ids = {2};
    ASSERT_TRUE(core_
                    ->add_request(std::make_unique<Request>(id, std::move(prompt), params,
                                                            std::move(options)))
                    .ok());
  }

  // Steps until there is nothing to do; ids and finish reasons by request.
  void run() {
    for (int i = 0; i < 1000 && core_->has_work(); ++i) take(core_->step());
    ASSERT_FALSE(core_->has_work());
  }

  void take(const std::vector<RequestOutput>& outputs) {
    for (const RequestOutput& output : outputs) {
      std::vector<int32_t>& ids = ids_[output.request_id];
      ids.insert(ids.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      if (output.finished()) reasons_[output.request_id] = output.finish_reason;
      for (const TokenLogprobs& entry : output.prompt_logprobs) {
        prompt_logprobs_[output.request_id].push_back(entry);
      }
      for (const TokenLogprobs& entry : output.new_logprobs) {
        logprobs_[output.request_id].push_back(entry);
      }
    }
  }

  FakeExecutor* executor_;
  std::unique_ptr<EngineCore> core_;
  std::map<std::string, std::vector<int32_t>> ids_;
  std::map<std::string, std::string> reasons_;
  std::map<std::string, std::vector<TokenLogprobs>> prompt_logprobs_, logprobs_;
};

TEST_P(EngineCoreTest, GeneratesToLengthAndToEnd) {
  add("a", {10, 11, 12}, 4);
  add("b", {30}, 20);  // 31, 0, 1, 2 = end
  run();
  EXPECT_EQ(ids_["a"], (std::vector<int32_t>{13, 14, 15, 16}));
  EXPECT_EQ(reasons_["a"], "length");
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{31, 0, 1, 2}));
  EXPECT_EQ(reasons_["b"], "stop");
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

TEST_P(EngineCoreTest, BadLogitsEndTheirRequestAlone) {
  add("a", {10}, 6);
  add("b", {20}, 6);
  executor_->bad_request = "a";
  run();
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(reasons_["b"], "length");
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{21, 22, 23, 24, 25, 26}));
}

TEST_P(EngineCoreTest, AFailedStepEndsItsRequestsAndTheEngineGoesOn) {
  add("a", {10}, 6);
  executor_->fail_next = true;
  take(core_->step());
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(core_->step_error().message(), "the model broke");
  add("b", {20}, 2);
  run();
  EXPECT_EQ(reasons_["b"], "length");
  EXPECT_TRUE(core_->step_error().ok());
}

// One logit is 1, the others 0.
const double kLogSum = std::log(std::exp(1.0) + kVocab - 1);

TEST_P(EngineCoreTest, ScoresPromptsOverSeveralStepsAndDespiteTheCache) {
  SamplingParams params;
  params.prompt_logprobs = 1;
  params.logprobs = 2;
  for (const char* id : {"first", "again"}) {
    // Longer than a step, and than the rows of logits that are held at once.
    std::vector<int32_t> prompt(100);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i % kVocab);
    prompt[50] = 7;
    add(id, prompt, 2, params);
    run();
    const std::vector<TokenLogprobs>& scores = prompt_logprobs_[id];
    ASSERT_EQ(scores.size(), prompt.size() - 1);
    for (size_t i = 0; i < scores.size(); ++i) {
      const bool expected = prompt[i + 1] == (prompt[i] + 1) % kVocab;
      EXPECT_NEAR(scores[i].chosen, (expected ? 1.0 : 0.0) - kLogSum, 1e-6) << i;
      ASSERT_EQ(scores[i].top.size(), 1u);
      EXPECT_EQ(scores[i].top[0].first, (prompt[i] + 1) % kVocab) << i;
    }
    ASSERT_EQ(logprobs_[id].size(), 2u);
    EXPECT_NEAR(logprobs_[id][0].chosen, 1.0 - kLogSum, 1e-6);
    EXPECT_EQ(logprobs_[id][1].top.size(), 2u);
  }
}

TEST_P(EngineCoreTest, APromptThatCannotBeScoredEndsAlone) {
  SamplingParams params;
  params.prompt_logprobs = 0;
  executor_->bad_request = "a";
  add("a", std::vector<int32_t>(60, 5), 2, params);
  add("b", {20, 21, 22}, 2, params);
  run();
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(reasons_["b"], "length");
  EXPECT_EQ(prompt_logprobs_["b"].size(), 2u);
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

TEST_P(EngineCoreTest, PreemptedPromptsAreScoredOnce) {
  SamplingParams params;
  params.prompt_logprobs = 0;
  // Together they outgrow the 15 blocks, so that one of them is computed again.
  for (const char* id : {"a", "b", "c"}) add(id, std::vector<int32_t>(70, 3), 30, params);
  run();
  EXPECT_GT(core_->stats().num_preemptions, 0);
  for (const char* id : {"a", "b", "c"}) EXPECT_EQ(prompt_logprobs_[id].size(), 69u) << id;
}

// Over an executor whose hidden states of token t are (t, 1).
class EmbeddingCoreTest : public EngineCoreTest {
 protected:
  EmbeddingCoreTest() { make(0); }

  void make(int32_t long_prefill_token_threshold) {
    EngineConfig config;
    config.max_model_len = 128;
    config.num_blocks = 16;
    config.max_num_batched_tokens = 80;
    config.async_scheduling = GetParam();
    config.long_prefill_token_threshold = long_prefill_token_threshold;
    auto executor = std::make_unique<FakeExecutor>(kVocab);
    executor_ = executor.get();
    core_ = std::make_unique<EngineCore>(config, uniform_kv_cache_config(1, config.block_size),
                                         std::move(executor), Sampler(), true);
  }

  void add(const std::string& id, std::vector<int32_t> tokens, PoolingMode mode) {
    RequestOptions options;
    options.pooling = PoolingParams{mode, false, 0};
    ASSERT_TRUE(core_
                    ->add_request(std::make_unique<Request>(id, std::move(tokens), SamplingParams(),
                                                            std::move(options)))
                    .ok());
  }

  // Embeddings and reasons of what ends in a step.
  void step() {
    for (const RequestOutput& output : core_->step()) {
      EXPECT_TRUE(output.new_token_ids.empty());
      embeddings_[output.request_id] = output.embedding;
      reasons_[output.request_id] = output.finish_reason;
      num_cached_[output.request_id] = output.num_cached_tokens;
    }
  }

  void run() {
    for (int i = 0; i < 1000 && core_->has_work(); ++i) step();
    ASSERT_FALSE(core_->has_work());
    EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
  }

  std::map<std::string, std::vector<float>> embeddings_;
  std::map<std::string, int32_t> num_cached_;
};

TEST_P(EmbeddingCoreTest, TheLastTokenOrTheMeanOverSeveralSteps) {
  std::vector<int32_t> tokens(128, 2);  // as long as the context, longer than a step
  tokens.back() = 30;
  for (const char* id : {"last", "last again"}) add(id, tokens, PoolingMode::LAST);
  add("mean", tokens, PoolingMode::MEAN);
  run();
  const float mean = (127 * 2.0F + 30) / 128;
  EXPECT_EQ(embeddings_["last"], (std::vector<float>{30, 1}));
  EXPECT_EQ(embeddings_["last again"], (std::vector<float>{30, 1}));
  EXPECT_EQ(embeddings_["mean"], (std::vector<float>{mean, 1}));
  EXPECT_EQ(reasons_["mean"], "stop");
  // What is cached helps the last token only.
  add("cached", tokens, PoolingMode::LAST);
  add("mean again", tokens, PoolingMode::MEAN);
  run();
  EXPECT_EQ(num_cached_["cached"], 112);
  EXPECT_EQ(num_cached_["mean again"], 0);
  EXPECT_EQ(embeddings_["cached"], embeddings_["last"]);
  EXPECT_EQ(embeddings_["mean again"], embeddings_["mean"]);
}

TEST_P(EmbeddingCoreTest, PreemptedMeansBeginAgain) {
  make(20);  // all of them at once, which the cache cannot hold to their end
  for (const char* id : {"a", "b", "c", "d"}) {
    add(id, std::vector<int32_t>(100, id[0] - 'a' + 1), PoolingMode::MEAN);
  }
  run();
  for (const char* id : {"a", "b", "c", "d"}) {
    EXPECT_EQ(embeddings_[id], (std::vector<float>{id[0] - 'a' + 1.0F, 1})) << id;
  }
  EXPECT_GT(core_->stats().num_preemptions, 0);
}

TEST_P(EmbeddingCoreTest, AFailedOneEndsAloneAndAnAbortedOneLeavesNothing) {
  executor_->bad_request = "bad";
  add("bad", {4, 5}, PoolingMode::LAST);
  add("good", {4, 5}, PoolingMode::LAST);
  add("aborted", std::vector<int32_t>(128, 9), PoolingMode::MEAN);
  step();
  if (GetParam()) step();
  EXPECT_EQ(reasons_["bad"], "error");
  EXPECT_EQ(embeddings_["good"], (std::vector<float>{5, 1}));
  const std::string ids[] = {"aborted"};
  EXPECT_EQ(core_->finish_requests(ids, RequestStatus::FINISHED_ABORTED).size(), 1u);
  // The same id begins anew, unless a step that names it runs.
  const std::string id = GetParam() ? "another" : "aborted";
  add(id, {3}, PoolingMode::MEAN);
  run();
  EXPECT_EQ(embeddings_[id], (std::vector<float>{3, 1}));
}

TEST_P(EmbeddingCoreTest, RefusesWhatIsLongerThanTheContext) {
  RequestOptions options;
  options.pooling = PoolingParams();
  const Status refused = core_->add_request(std::make_unique<Request>(
      "long", std::vector<int32_t>(129, 1), SamplingParams(), std::move(options)));
  EXPECT_EQ(refused.code(), StatusCode::INVALID_ARGUMENT);
}

TEST_P(EngineCoreTest, AbortFreesEverything) {
  add("a", std::vector<int32_t>(40, 9), 20);
  take(core_->step());
  const std::string ids[] = {"a", "unknown"};
  take(core_->finish_requests(ids, RequestStatus::FINISHED_ABORTED));
  EXPECT_EQ(reasons_["a"], "abort");
  run();
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

// Of one request with three tokens.
TEST_P(EngineCoreTest, TheNextStepIsPreparedWhileOneRuns) {
  add("a", {10}, 3);
  run();
  EXPECT_EQ(executor_->calls, GetParam()
                                  ? "prepare start prepare wait start prepare wait start wait "
                                  : "prepare start wait prepare start wait prepare start wait ");
}

// Also of one that entered while the step ran, and had hit what the step was to write.
TEST_P(EngineCoreTest, AStepThatFailsWhileItRunsEndsItsRequestsAlone) {
  const std::vector<int32_t> prompt(40, 9);
  add("a", prompt, 20);
  add("gone", {20}, 20);
  take(core_->step());
  const std::string ids[] = {"gone"};
  take(core_->finish_requests(ids, RequestStatus::FINISHED_ABORTED));
  add("b", prompt, 3);
  executor_->fail_next_wait = true;
  take(core_->step());
  EXPECT_EQ(core_->step_error().message(), "the device broke");
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(reasons_["gone"], "abort");
  EXPECT_EQ(core_->stats().num_cached_blocks, 0) << "nothing in the cache is trusted";
  if (!GetParam()) {  // both are in the step that fails
    EXPECT_EQ(reasons_["b"], "error");
    return;
  }
  run();
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{10, 11, 12}));
  EXPECT_EQ(reasons_["b"], "length");
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

// The tokens of the step before are not lost with the one that cannot be started.
TEST_P(EngineCoreTest, AStepThatDoesNotStartLeavesTheTokensOfTheOneBefore) {
  add("a", {10}, 9);
  add("b", {31, 0, 1}, 9);  // ends with its first token, 2
  take(core_->step());
  executor_->fail_next = true;
  take(core_->step());
  EXPECT_EQ(ids_["a"], (std::vector<int32_t>{11}));
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(reasons_["b"], "stop");
  run();
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

TEST_P(EngineCoreTest, WhatIsComputedBehindAnEndIsThrownAway) {
  add("a", {30}, 20);  // 31, 0, 1, 2 = end
  add("b", {10}, 8);
  run();
  EXPECT_EQ(ids_["a"], (std::vector<int32_t>{31, 0, 1, 2}));
  EXPECT_EQ(reasons_["a"], "stop");
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

INSTANTIATE_TEST_SUITE_P(Scheduling, EngineCoreTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Async" : "Sync"; });
INSTANTIATE_TEST_SUITE_P(Scheduling, EmbeddingCoreTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Async" : "Sync"; });

}  // namespace
}  // namespace pinfer
