// The heart of the engine: one call of step() is one step of generation for all running requests.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine_config.h"
#include "core/request_output.h"
#include "engine/pooler.h"
#include "executor/executor.h"
#include "sampler/sampler.h"
#include "scheduler/scheduler.h"

namespace pinfer {

// Not thread-safe: the engine thread owns it.
class EngineCore {
 public:
  // embeds: all requests are for embeddings, else none. REQUIRES: config is valid, max_model_len
  // and num_blocks are known; the executor's cache is laid out by kv_cache_config.
  EngineCore(const EngineConfig& config, KVCacheConfig kv_cache_config,
             std::unique_ptr<Executor> executor, Sampler sampler, bool embeds = false)
      : scheduler_(config, std::move(kv_cache_config)),
        executor_(std::move(executor)),
        sampler_(std::move(sampler)),
        embeds_(embeds),
        async_scheduling_(config.async_scheduling) {}

  Status add_request(std::unique_ptr<Request> request) {
    return scheduler_.add_request(std::move(request));
  }

  // Ends requests from outside; see Scheduler::finish_requests.
  std::vector<RequestOutput> finish_requests(std::span<const std::string> request_ids,
                                             RequestStatus status) {
    return scheduler_.finish_requests(request_ids, status);
  }

  // Schedules, computes, samples (or pools) and takes the tokens in; with async_scheduling those of
  // the step before, while this one runs. If the model fails, every request of the step ends with
  // an error; step_error() says why.
  std::vector<RequestOutput> step();

  bool has_work() const {
    return scheduler_.has_unfinished_requests() || scheduler_.has_finished_requests() ||
           in_flight_ != nullptr;
  }
  // Requests that the last step scheduled for the first time.
  const std::vector<std::string>& started_request_ids() const { return started_request_ids_; }
  // Why the last step failed; ok if it did not.
  const Status& step_error() const { return step_error_; }
  SchedulerStats stats() const { return scheduler_.stats(); }
  bool reset_prefix_cache() { return scheduler_.reset_prefix_cache(); }

 private:
  // Waits for a step that was started, and samples or pools.
  Result<ModelRunnerOutput> collect(const SchedulerOutput& scheduler_output);
  void note_started(const SchedulerOutput& scheduler_output);
  void sample(const SchedulerOutput& scheduler_output, const Logits& logits,
              ModelRunnerOutput* output);
  Status pool(const SchedulerOutput& scheduler_output, ModelRunnerOutput* output);
  Status score_prompts(const SchedulerOutput& scheduler_output, ModelRunnerOutput* output);
  std::vector<RequestOutput> fail(const SchedulerOutput& scheduler_output, const Status& status,
                                  std::vector<RequestOutput> outputs = {});

  Scheduler scheduler_;
  std::unique_ptr<Executor> executor_;
  Sampler sampler_;
  Pooler pooler_;
  const bool embeds_, async_scheduling_;
  const SchedulerOutput* in_flight_ = nullptr;  // a step that runs, or has run: not taken in yet
  std::vector<std::string> started_request_ids_;
  Status step_error_;
};

}  // namespace pinfer
