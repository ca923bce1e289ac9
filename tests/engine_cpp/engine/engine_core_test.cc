#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace pinfer {
namespace {

constexpr int32_t kVocab = 32;

// After token t the best token is t + 1; fails or gives bad logits where told to.
class FakeExecutor final : public Executor {
 public:
  Result<Logits> execute_model(const SchedulerOutput& scheduler_output) override {
    if (fail_next) {
      fail_next = false;
      return Status::internal("the model broke");
    }
    logits_.clear();
    int32_t rows = 0;
    for (const ScheduledRequest& request : scheduler_output.scheduled_requests) {
      if (!request.samples) continue;
      std::vector<float> row(kVocab, 0.0f);
      row[static_cast<size_t>((request.token_ids.back() + 1) % kVocab)] = 1.0f;
      if (request.request_id == bad_request) row[3] = std::numeric_limits<float>::quiet_NaN();
      logits_.insert(logits_.end(), row.begin(), row.end());
      ++rows;
    }
    return Logits{logits_.data(), rows, kVocab};
  }

  bool fail_next = false;
  std::string bad_request;

 private:
  std::vector<float> logits_;
};

class EngineCoreTest : public testing::Test {
 protected:
  EngineCoreTest() {
    EngineConfig config;
    config.max_model_len = 64;
    config.num_blocks = 16;
    config.max_num_batched_tokens = 256;
    auto executor = std::make_unique<FakeExecutor>();
    executor_ = executor.get();
    core_ = std::make_unique<EngineCore>(config, std::move(executor), Sampler());
  }

  void add(const std::string& id, std::vector<int32_t> prompt, int32_t max_tokens) {
    SamplingParams params;
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
    }
  }

  FakeExecutor* executor_;
  std::unique_ptr<EngineCore> core_;
  std::map<std::string, std::vector<int32_t>> ids_;
  std::map<std::string, std::string> reasons_;
};

TEST_F(EngineCoreTest, GeneratesToLengthAndToEnd) {
  add("a", {10, 11, 12}, 4);
  add("b", {30}, 20);  // 31, 0, 1, 2 = end
  run();
  EXPECT_EQ(ids_["a"], (std::vector<int32_t>{13, 14, 15, 16}));
  EXPECT_EQ(reasons_["a"], "length");
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{31, 0, 1, 2}));
  EXPECT_EQ(reasons_["b"], "stop");
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

TEST_F(EngineCoreTest, BadLogitsEndTheirRequestAlone) {
  add("a", {10}, 6);
  add("b", {20}, 6);
  executor_->bad_request = "a";
  run();
  EXPECT_EQ(reasons_["a"], "error");
  EXPECT_EQ(reasons_["b"], "length");
  EXPECT_EQ(ids_["b"], (std::vector<int32_t>{21, 22, 23, 24, 25, 26}));
}

TEST_F(EngineCoreTest, AFailedStepEndsItsRequestsAndTheEngineGoesOn) {
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

TEST_F(EngineCoreTest, AbortFreesEverything) {
  add("a", std::vector<int32_t>(40, 9), 20);
  take(core_->step());
  const std::string ids[] = {"a", "unknown"};
  take(core_->finish_requests(ids, RequestStatus::FINISHED_ABORTED));
  EXPECT_EQ(reasons_["a"], "abort");
  run();
  EXPECT_EQ(core_->stats().num_free_blocks, core_->stats().num_usable_blocks);
}

}  // namespace
}  // namespace pinfer
