// An Executor without a model: after token t the best token is t + 1. Fails, when a step is started
// or when it is waited for, or gives logits that are not finite, where told to.
#pragma once

#include <atomic>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "executor/executor.h"

namespace pinfer {

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(int32_t vocab_size) : vocab_size_(vocab_size) {}

  Status prepare_inputs(const SchedulerOutput& scheduler_output) override {
    if (scheduler_output.total_num_scheduled_tokens > 0) calls += "prepare ";
    return Status();
  }

  Status execute_model(const SchedulerOutput& scheduler_output) override {
    if (scheduler_output.total_num_scheduled_tokens > 0) calls += "start ";
    if (fail_next.exchange(false)) return Status::internal("the model broke");
    tokens_.clear();
    sampled_rows_ = scheduler_output.sampled_rows();
    for (const ScheduledRequest& request : scheduler_output.scheduled_requests) {
      for (const int32_t id : request.token_ids) {
        tokens_.emplace_back(id, request.request_id == bad_request);
      }
    }
    return Status();
  }

  Result<Logits> sampled_logits() override {
    if (!tokens_.empty()) calls += "wait ";
    if (fail_next_wait.exchange(false)) return Status::internal("the device broke");
    return compute_logits(sampled_rows_);
  }

  Result<Logits> compute_logits(std::span<const int32_t> rows) override {
    const auto width = static_cast<size_t>(vocab_size_);
    logits_.assign(rows.size() * width, 0.0f);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto [id, is_bad] = tokens_.at(static_cast<size_t>(rows[i]));
      float* row = logits_.data() + i * width;
      row[(id + 1) % vocab_size_] = 1.0f;
      if (is_bad) row[3] = std::numeric_limits<float>::quiet_NaN();
    }
    return Logits{logits_.data(), static_cast<int32_t>(rows.size()), vocab_size_};
  }

  // Of token t: (t, 1).
  Result<HiddenStates> compute_hidden_states(std::span<const int32_t> rows) override {
    states_.clear();
    for (const int32_t row : rows) {
      const auto [id, is_bad] = tokens_.at(static_cast<size_t>(row));
      states_.push_back(is_bad ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(id));
      states_.push_back(1.0f);
    }
    return HiddenStates{states_.data(), static_cast<int32_t>(rows.size()), 2};
  }

  std::atomic<bool> fail_next = false, fail_next_wait = false;
  std::string calls;  // of steps that have tokens
  std::string bad_request;

 private:
  const int32_t vocab_size_;
  std::vector<std::pair<int32_t, bool>> tokens_;  // of the step: id, of the bad request
  std::vector<int32_t> sampled_rows_;
  std::vector<float> logits_, states_;
};

}  // namespace pinfer
