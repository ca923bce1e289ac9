#include "engine/engine_core.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>

#include "sampler/logprobs.h"

namespace pinfer {
namespace {

// Rows of prompt logits, or of hidden states, that are held at once.
constexpr int32_t kPromptLogitsRows = 64;

}  // namespace

std::vector<RequestOutput> EngineCore::step() {
  step_error_ = Status();
  const SchedulerOutput& scheduler_output = scheduler_.schedule();
  started_request_ids_.clear();
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    if (scheduled.kind == ScheduledKind::NEW) started_request_ids_.push_back(scheduled.request_id);
  }
  const Result<ModelRunnerOutput> model_runner_output = execute(scheduler_output);
  if (!model_runner_output.ok()) return fail(scheduler_output, model_runner_output.status());
  return scheduler_.update_from_output(scheduler_output, model_runner_output.value());
}

Result<ModelRunnerOutput> EngineCore::execute(const SchedulerOutput& scheduler_output) {
  try {
    ModelRunnerOutput output;
    PINFER_RETURN_IF_ERROR(executor_->execute_model(scheduler_output));
    if (embeds_) {
      PINFER_RETURN_IF_ERROR(pool(scheduler_output, &output));
      return output;
    }
    PINFER_RETURN_IF_ERROR(sample(scheduler_output, &output));
    PINFER_RETURN_IF_ERROR(score_prompts(scheduler_output, &output));
    return output;
  } catch (const std::bad_alloc&) {
    return Status::resource_exhausted("out of memory");
  }
}

// Each token names its request, so a request without one leaves a gap.
Status EngineCore::sample(const SchedulerOutput& scheduler_output, ModelRunnerOutput* output) {
  PINFER_ASSIGN_OR_RETURN(const Logits logits,
                          executor_->compute_logits(scheduler_output.sampled_rows()));
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
  return Status();
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
