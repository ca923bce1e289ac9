// Decides, step by step, which requests compute how many tokens, and gives them cache blocks.
//
// The rules are those of vLLM V1 (docs/scheduler.md): running requests first, then admissions,
// under one budget of tokens; prompts are computed in chunks; when blocks run out a running request
// is preempted and computed again later. There is no difference between prefill and decode: a
// request computes what it has not computed yet.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/engine_config.h"
#include "core/kv_cache_config.h"
#include "core/model_runner_output.h"
#include "core/request.h"
#include "core/request_output.h"
#include "core/scheduler_output.h"
#include "core/status.h"
#include "kv_cache/kv_cache_manager.h"
#include "scheduler/request_queue.h"

namespace pinfer {

struct SchedulerStats {
  int32_t num_running_requests = 0;
  int32_t num_waiting_requests = 0;  // preempted ones too
  int32_t num_usable_blocks = 0;     // the pool without the null block
  int32_t num_free_blocks = 0;       // those that only the prefix cache knows too
  int32_t num_cached_blocks = 0;     // blocks with a key, free or held
  int64_t prefix_cache_queried_tokens = 0;
  int64_t prefix_cache_hit_tokens = 0;
  int64_t num_preemptions = 0;
};

// Not thread-safe: one thread drives it, in rounds of schedule(), the model, update_from_output().
// The next step may be scheduled before the output of the last one has been taken in (asynchronous
// scheduling); steps run in their order. Requests may be added and finished at any moment between
// these calls; an id is free again when no step that names it runs. Owns its requests until they
// have finished.
class Scheduler {
 public:
  // REQUIRES: config is valid, max_model_len and num_blocks are known (not 0).
  Scheduler(const EngineConfig& config, KVCacheConfig kv_cache_config);
  // For a model in which every token attends to all before it.
  explicit Scheduler(const EngineConfig& config)
      : Scheduler(config, uniform_kv_cache_config(1, config.block_size)) {}
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Refused: an id in use, bad sampling parameters, a prompt that leaves no room for a token
  // (INVALID_ARGUMENT), a request that the cache can never hold (RESOURCE_EXHAUSTED).
  Status add_request(std::unique_ptr<Request> request);

  // Ends requests from outside, one after the other: FINISHED_ABORTED for a caller that has left,
  // FINISHED_STOPPED for a stop string, FINISHED_ERROR for a failed step (their blocks lose their
  // keys). Unknown and finished ids are ignored. One output for each request that ended.
  // REQUIRES: status is a finished one.
  std::vector<RequestOutput> finish_requests(std::span<const std::string> request_ids,
                                             RequestStatus status);

  // The next step. After it, every scheduled token counts as computed. A token that is still being
  // sampled is a placeholder (SchedulerOutput::put_sampled_tokens). The result is reused: it is
  // valid until the call after the next.
  SchedulerOutput& schedule();

  // Takes the tokens sampled and the embeddings made in the step that scheduler_output describes;
  // requests that end are freed at once. What failed, or is missing, ends its request with an
  // error. Requests that were finished since schedule() are passed over; those that were preempted
  // keep their token. One output for each request that got a token or ended; the result is reused:
  // it is valid until the next call.
  const std::vector<RequestOutput>& update_from_output(
      const SchedulerOutput& scheduler_output, const ModelRunnerOutput& model_runner_output);

  // For a step that could not be computed: its requests end with an error. What it was to write may
  // be in the cache's books already, so nothing in there is trusted: other running requests begin
  // again, and all prefixes are forgotten. A step that was scheduled after it must not run.
  std::vector<RequestOutput> fail_step(const SchedulerOutput& scheduler_output);

  bool has_unfinished_requests() const { return !requests_.empty(); }
  // There are ended requests of which no step has told the executor yet.
  bool has_finished_requests() const { return !finished_request_ids_.empty(); }

  // nullptr if unknown or finished. Valid until the request has finished.
  const Request* find_request(std::string_view request_id) const;

  SchedulerStats stats() const;

  // Forgets all cached prefixes. False, and nothing done, while any request holds blocks.
  bool reset_prefix_cache() { return kv_cache_manager_.block_pool().reset_prefix_cache(); }

  // For tests and traces.
  std::vector<std::string> running_request_ids() const;
  std::vector<std::string> waiting_request_ids() const { return waiting_.request_ids(); }
  KVCacheManager& kv_cache_manager() { return kv_cache_manager_; }

 private:
  struct StringHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Requests =
      std::unordered_map<std::string, std::unique_ptr<Request>, StringHash, std::equal_to<>>;

  // A step being put together, in the order of running_. Kept between steps, so that a step
  // allocates next to nothing: output->scheduled_requests may have more entries than the others
  // until the step is complete.
  struct Step {
    int32_t token_budget = 0;
    int32_t threshold = 0;  // cap of one request's tokens; 0 = none
    std::vector<Request*> requests;
    std::vector<int32_t> num_tokens;
    SchedulerOutput* output = nullptr;
  };

  Status check_fits(const Request& request) const;
  Request* find(std::string_view request_id);

  void begin_step();
  void schedule_running();
  bool awaits_end(const Request& request) const;
  void schedule_waiting();
  bool allocate_or_preempt(size_t& index, int32_t num_tokens);
  int32_t capped(int32_t num_tokens) const;
  void add_to_step(Request* request, ScheduledKind kind, int32_t num_tokens,
                   size_t num_known_blocks);
  size_t choose_victim() const;
  void preempt(size_t index);
  void withdraw(const Request* request);
  void complete_step();

  Request* find_scheduled(const ScheduledRequest& scheduled, size_t& position);
  void check_for_end(Request& request, int32_t token_id) const;
  bool reaches_length(const Request& request, int32_t num_tokens) const;
  void finish(Request& request, RequestStatus status);
  void forget_finished();

  const EngineConfig config_;
  KVCacheManager kv_cache_manager_;
  Requests requests_;
  std::vector<Request*> running_;  // in order of admission
  RequestQueue waiting_;
  std::vector<std::string> finished_request_ids_;   // since the last schedule()
  std::vector<std::string> preempted_request_ids_;  // of this step, or a failed one before it
  int64_t num_preemptions_ = 0;
  Step step_;
  std::array<SchedulerOutput, 2> step_outputs_;  // in turn
  std::vector<RequestOutput> outputs_;           // of update_from_output()
};

}  // namespace pinfer
