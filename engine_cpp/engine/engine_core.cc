#include "engine/engine_core.h"

#include <new>

namespace pinfer {

std::vector<RequestOutput> EngineCore::step() {
  step_error_ = Status();
  const SchedulerOutput& scheduler_output = scheduler_.schedule();
  ModelRunnerOutput model_runner_output;
  try {
    const Result<Logits> logits = executor_->execute_model(scheduler_output);
    if (!logits.ok()) return fail(scheduler_output, logits.status());
    model_runner_output = sample(scheduler_output, logits.value());
  } catch (const std::bad_alloc&) {
    return fail(scheduler_output, Status::resource_exhausted("out of memory"));
  }
  return scheduler_.update_from_output(scheduler_output, model_runner_output);
}

ModelRunnerOutput EngineCore::sample(const SchedulerOutput& scheduler_output,
                                     const Logits& logits) {
  // Row i of the logits belongs to the i-th scheduled request that samples. Each token names its
  // request, so a request without one leaves a gap.
  ModelRunnerOutput output;
  int32_t row = 0;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    if (!scheduled.samples) continue;
    const Request* request = scheduler_.find_request(scheduled.request_id);
    if (request != nullptr) {
      output.sampled_tokens.push_back(sampler_.sample(logits.row(row), *request));
    }
    ++row;
  }
  return output;
}

std::vector<RequestOutput> EngineCore::fail(const SchedulerOutput& scheduler_output,
                                            const Status& status) {
  step_error_ = status;
  std::vector<std::string> ids;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    ids.push_back(scheduled.request_id);
  }
  return scheduler_.finish_requests(ids, RequestStatus::FINISHED_ERROR);
}

}  // namespace pinfer
