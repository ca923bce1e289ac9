#include "engine/engine_core.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "sampler/logprobs.h"

namespace pinfer {
namespace {

// Rows of prompt logits, or of hidden states, that are held at once.
constexpr int32_t kPromptLogitsRows = 64;

// Memory that is out is an error of the step, too.
template <typename Work>
auto attempt(Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status::resource_exhausted("out of memory");
  }
}

}  // namespace

// With async_scheduling a step is scheduled, and its inputs are prepared, while the last one runs;
// the tokens of that are put in place when they are there, and taken in while this one runs. Else
// nothing is in flight when a step begins: it is started and waited for.
std::vector<RequestOutput> EngineCore::step() {
  step_error_ = Status();
  SchedulerOutput& next = scheduler_.schedule();
  note_started(next);
  Status status = attempt([&] { return executor_->prepare_inputs(next); });
  const SchedulerOutput* last = std::exchange(in_flight_, nullptr);
  Result<ModelRunnerOutput> sampled = ModelRunnerOutput();
  if (last != nullptr) {
    sampled = collect(*last);
    if (!sampled.ok()) return fail(*last, sampled.status());
    next.put_sampled_tokens(sampled.value().sampled_tokens);
  }
  if (status.ok()) status = attempt([&] { return executor_->execute_model(next); });
  std::vector<RequestOutput> outputs;
  if (last != nullptr) outputs = scheduler_.update_from_output(*last, sampled.value());
  if (!status.ok()) return fail(next, status, std::move(outputs));
  if (async_scheduling_) {
    if (next.total_num_scheduled_tokens > 0) in_flight_ = &next;
    return outputs;
  }
  sampled = collect(next);
  if (!sampled.ok()) return fail(next, sampled.status());
  return scheduler_.update_from_output(next, sampled.value());
}

void EngineCore::note_started(const SchedulerOutput& scheduler_output) {
  started_request_ids_.clear();
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    if (scheduled.kind == ScheduledKind::NEW) started_request_ids_.push_back(scheduled.request_id);
  }
}

Result<ModelRunnerOutput> EngineCore::collect(const SchedulerOutput& scheduler_output) {
  return attempt([&]() -> Result<ModelRunnerOutput> {
    ModelRunnerOutput output;
    PINFER_ASSIGN_OR_RETURN(const Logits logits, executor_->sampled_logits());
    if (embeds_) {
      PINFER_RETURN_IF_ERROR(pool(scheduler_output, &output));
      return output;
    }
    sample(scheduler_output, logits, &output);
    PINFER_RETURN_IF_ERROR(score_prompts(scheduler_output, &output));
    return output;
  });
}

// Each token names its request, so a request without one leaves a gap.
void EngineCore::sample(const SchedulerOutput& scheduler_output, const Logits& logits,
                        ModelRunnerOutput* output) {
  int32_t row = 0;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    if (!scheduled.samples) continue;
    const std::span<const float> row_logits = logits.row(row++);
    const Request* request = scheduler_.find_request(scheduled.request_id);
    if (request == nullptr) continue;
    SampledToken& token =
        output->sampled_tokens.emplace_back(sampler_.sample(row_logits, *request));
    if (request->sampling_params.logprobs.has_value() && !token.failed) {
      token.logprobs = log_softmax_top(row_logits, *request->sampling_params.logprobs,
                                       token.token_id, sampler_.masked_token_ids());
    }
  }
}

// A request that was preempted begins again with its first token, unless it needs the last one
// only.
Status EngineCore::pool(const SchedulerOutput& scheduler_output, ModelRunnerOutput* output) {
  pooler_.forget(scheduler_output.finished_request_ids);
  pooler_.forget(scheduler_output.preempted_request_ids);
  int32_t first_row = 0;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    const int32_t begin = first_row;
    first_row += scheduled.num_scheduled_tokens();
    const Request* request = scheduler_.find_request(scheduled.request_id);
    if (request == nullptr || !request->pooling.has_value()) continue;
    const bool needs_all = request->pooling->mode == PoolingMode::MEAN;
    if (!needs_all && !scheduled.samples) continue;
    for (int32_t row = needs_all ? begin : first_row - 1; row < first_row;
         row += kPromptLogitsRows) {
      std::vector<int32_t> rows(static_cast<size_t>(std::min(kPromptLogitsRows, first_row - row)));
      std::iota(rows.begin(), rows.end(), row);
      PINFER_ASSIGN_OR_RETURN(const HiddenStates states, executor_->compute_hidden_states(rows));
      pooler_.add(scheduled.request_id, states);
    }
    if (scheduled.samples) {
      output->embeddings.push_back(pooler_.take(scheduled.request_id, *request->pooling));
    }
  }
  return Status();
}

// The logits at position p are about the token at p + 1. What a preempted request has passed on
// already is left out when it is computed again.
Status EngineCore::score_prompts(const SchedulerOutput& scheduler_output,
                                 ModelRunnerOutput* output) {
  int32_t first_row = 0;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    const int32_t begin = first_row;
    first_row += scheduled.num_scheduled_tokens();
    const Request* request = scheduler_.find_request(scheduled.request_id);
    if (request == nullptr || !request->sampling_params.prompt_logprobs.has_value()) continue;
    const int32_t computed = scheduled.num_computed_tokens;
    const int32_t position = std::max(computed, request->num_prompt_logprobs);
    const int32_t end =
        std::min(computed + scheduled.num_scheduled_tokens(), request->num_prompt_tokens - 1);
    if (position >= end) continue;
    PromptLogprobs& scored = output->prompt_logprobs.emplace_back();
    scored.request_id = scheduled.request_id;
    for (int32_t p = position; p < end && !scored.failed; p += kPromptLogitsRows) {
      std::vector<int32_t> rows(static_cast<size_t>(std::min(kPromptLogitsRows, end - p)));
      std::iota(rows.begin(), rows.end(), begin + p - computed);
      PINFER_ASSIGN_OR_RETURN(const Logits logits, executor_->compute_logits(rows));
      for (int32_t i = 0; i < logits.num_rows && !scored.failed; ++i) {
        const int32_t token_id = request->prompt_token_ids()[static_cast<size_t>(p + i + 1)];
        std::optional<TokenLogprobs> logprobs =
            log_softmax_top(logits.row(i), *request->sampling_params.prompt_logprobs, token_id,
                            sampler_.masked_token_ids());
        scored.failed = !logprobs.has_value();
        if (logprobs.has_value()) scored.tokens.push_back(std::move(*logprobs));
      }
    }
  }
  return Status();
}

// The step's requests end, after what the one before it has given them.
std::vector<RequestOutput> EngineCore::fail(const SchedulerOutput& scheduler_output,
                                            const Status& status,
                                            std::vector<RequestOutput> outputs) {
  step_error_ = status;
  std::vector<RequestOutput> failed = scheduler_.fail_step(scheduler_output);
  std::move(failed.begin(), failed.end(), std::back_inserter(outputs));
  return outputs;
}

}  // namespace pinfer
