#include "scheduler/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace pinfer {
namespace {

// Entry i of a list that is reused: an old one, whose memory is kept, or one more.
template <typename T>
T& entry_at(std::vector<T>& entries, size_t i) {
  if (i == entries.size()) entries.emplace_back();
  return entries[i];
}

void fill_output(const Request& request, RequestOutput& output) {
  output.request_id = request.request_id;
  output.new_token_ids.clear();
  output.new_logprobs.clear();
  output.prompt_logprobs.clear();
  output.embedding.clear();
  output.finish_reason = finish_reason(request.status);
  output.stop_reason = request.stop_reason;
  output.num_cached_tokens = std::max(request.num_cached_tokens, 0);
}

}  // namespace

Scheduler::Scheduler(const EngineConfig& config, KVCacheConfig kv_cache_config)
    : config_(config),
      kv_cache_manager_(config, std::move(kv_cache_config)),
      waiting_(config.scheduling_policy) {
  assert(config.max_model_len > 0 && config.num_blocks > 1);
}

Status Scheduler::add_request(std::unique_ptr<Request> request) {
  if (requests_.contains(request->request_id)) {
    return Status::invalid_argument("request_id " + request->request_id + " is in use");
  }
  PINFER_RETURN_IF_ERROR(request->sampling_params.validate());
  PINFER_RETURN_IF_ERROR(check_fits(*request));
  waiting_.add_request(request.get());
  requests_.emplace(request->request_id, std::move(request));
  return Status::ok_status();
}

Status Scheduler::check_fits(const Request& request) const {
  const int32_t num_prompt = request.num_prompt_tokens;
  if (!std::isfinite(request.arrival_time)) {
    return Status::invalid_argument("arrival_time is not finite");  // it could not be ordered
  }
  if (num_prompt == 0) return Status::invalid_argument("prompt_token_ids is empty");
  const bool samples = !request.pooling.has_value();
  if (num_prompt > config_.max_model_len - (samples ? 1 : 0)) {
    return Status::invalid_argument("the prompt of " + std::to_string(num_prompt) +
                                    " tokens leaves no room for output within max_model_len " +
                                    std::to_string(config_.max_model_len));
  }
  // The last sampled token is never computed, so it needs no place in the cache.
  const int64_t num_tokens =
      samples ? std::min<int64_t>(int64_t{num_prompt} + request.sampling_params.max_tokens,
                                  config_.max_model_len) -
                    1
              : num_prompt;
  const int64_t num_needed = kv_cache_manager_.max_blocks_held(num_tokens);
  if (num_needed <= kv_cache_manager_.block_pool().num_usable_blocks()) return Status::ok_status();
  return Status::resource_exhausted(
      "the request can reach " + std::to_string(num_tokens) + " cached tokens (prompt " +
      std::to_string(num_prompt) + ", max_tokens " +
      std::to_string(request.sampling_params.max_tokens) + "), the cache holds " +
      std::to_string(kv_cache_manager_.max_tokens_held(num_tokens)) +
      ": lower max_tokens or raise --num-blocks");
}

std::vector<RequestOutput> Scheduler::finish_requests(std::span<const std::string> request_ids,
                                                      RequestStatus status) {
  assert(is_finished(status));
  std::vector<RequestOutput> outputs;
  for (const std::string& id : request_ids) {
    Request* request = find(id);
    if (request == nullptr) continue;
    if (request->status == RequestStatus::RUNNING) {
      std::erase(running_, request);
    } else {
      waiting_.remove_request(request);
    }
    finish(*request, status);
    fill_output(*request, outputs.emplace_back());
    requests_.erase(requests_.find(std::string_view(id)));
  }
  return outputs;
}

SchedulerOutput& Scheduler::schedule() {
  begin_step();
  schedule_running();
  if (preempted_request_ids_.empty()) schedule_waiting();
  complete_step();
  return *step_.output;
}

void Scheduler::begin_step() {
  step_.token_budget = config_.max_num_batched_tokens;
  // A lone request has nobody to hold up.
  const bool is_alone = running_.size() + waiting_.size() <= 1;
  step_.threshold = is_alone ? 0 : config_.long_prefill_token_threshold;
  step_.requests.clear();
  step_.num_tokens.clear();
  // The other one may belong to a step that runs.
  step_.output = &step_outputs_[step_.output == &step_outputs_[0] ? 1 : 0];
}

void Scheduler::schedule_running() {
  size_t index = 0;
  while (index < running_.size() && step_.token_budget > 0) {
    Request* request = running_[index];
    if (awaits_end(*request)) {
      ++index;
      continue;
    }
    const int32_t num_tokens =
        capped(request->num_tokens_with_placeholders() - request->num_computed_tokens);
    const size_t num_known_blocks = request->block_ids.front().size();
    // A request that had to preempt itself ends the walk.
    if (!allocate_or_preempt(index, num_tokens)) break;
    add_to_step(request, ScheduledKind::RUNNING, num_tokens, num_known_blocks);
    ++index;
  }
}

// What is being sampled or pooled is the last that it gets: nothing is left to compute.
bool Scheduler::awaits_end(const Request& request) const {
  return request.num_output_placeholders > 0 &&
         (request.pooling.has_value() ||
          reaches_length(request, request.num_tokens_with_placeholders()));
}

// Preempts until running_[index] has its blocks; false if it was preempted itself. A victim that
// stands before it moves index.
bool Scheduler::allocate_or_preempt(size_t& index, int32_t num_tokens) {
  Request* request = running_[index];
  while (!kv_cache_manager_.allocate_for_running(*request, num_tokens)) {
    const size_t victim = choose_victim();
    preempt(victim);
    if (victim == index) return false;
    if (victim < index) --index;
  }
  return true;
}

void Scheduler::schedule_waiting() {
  while (step_.token_budget > 0 && !waiting_.empty() &&
         running_.size() < static_cast<size_t>(config_.max_num_seqs)) {
    Request* request = waiting_.peek_request();
    const ComputedBlocks computed = kv_cache_manager_.get_computed_blocks(*request);
    const int32_t num_tokens = capped(request->num_tokens() - computed.num_tokens);
    const int32_t num_reserved_blocks =
        running_.empty() ? 0 : static_cast<int32_t>(config_.watermark * config_.num_blocks);
    // Nothing behind the head is tried: the head would be overtaken for ever.
    if (!kv_cache_manager_.allocate_for_admission(*request, computed, num_tokens,
                                                  num_reserved_blocks)) {
      return;
    }
    waiting_.pop_request();
    running_.push_back(request);
    const auto kind =
        request->status == RequestStatus::WAITING ? ScheduledKind::NEW : ScheduledKind::RESUMED;
    request->status = RequestStatus::RUNNING;
    request->num_computed_tokens = computed.num_tokens;
    if (request->num_cached_tokens < 0) request->num_cached_tokens = computed.num_tokens;
    add_to_step(request, kind, num_tokens, 0);
  }
}

int32_t Scheduler::capped(int32_t num_tokens) const {
  if (step_.threshold > 0) num_tokens = std::min(num_tokens, step_.threshold);
  return std::min(num_tokens, step_.token_budget);
}

void Scheduler::add_to_step(Request* request, ScheduledKind kind, int32_t num_tokens,
                            size_t num_known_blocks) {
  ScheduledRequest& scheduled = entry_at(step_.output->scheduled_requests, step_.requests.size());
  scheduled.request_id = request->request_id;
  scheduled.kind = kind;
  scheduled.num_computed_tokens = request->num_computed_tokens;
  scheduled.new_block_ids.resize(request->block_ids.size());
  for (size_t g = 0; g < request->block_ids.size(); ++g) {
    const std::vector<int32_t>& table = request->block_ids[g];
    scheduled.new_block_ids[g].assign(table.begin() + static_cast<std::ptrdiff_t>(num_known_blocks),
                                      table.end());
  }
  step_.requests.push_back(request);
  step_.num_tokens.push_back(num_tokens);
  step_.token_budget -= num_tokens;
}

size_t Scheduler::choose_victim() const {
  if (config_.scheduling_policy == SchedulingPolicy::FCFS) return running_.size() - 1;
  const auto is_more_urgent = [](const Request* a, const Request* b) {
    return std::pair(a->priority, a->arrival_time) < std::pair(b->priority, b->arrival_time);
  };
  const auto victim = std::max_element(running_.begin(), running_.end(), is_more_urgent);
  return static_cast<size_t>(victim - running_.begin());
}

void Scheduler::preempt(size_t index) {
  Request* request = running_[index];
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
  withdraw(request);
  // Blocks that a withdrawn chunk was to fill have their key already, but the chunk will not run:
  // whoever found them would read what was never written.
  kv_cache_manager_.drop_keys(*request, request->num_computed_tokens / config_.block_size);
  kv_cache_manager_.free(*request);
  request->num_computed_tokens = 0;
  request->status = RequestStatus::PREEMPTED;
  ++request->num_preemptions;
  ++num_preemptions_;
  waiting_.prepend_request(request);
  preempted_request_ids_.push_back(request->request_id);
}

// Takes a request out of this step, if it was scheduled in it.
void Scheduler::withdraw(const Request* request) {
  const auto found = std::find(step_.requests.begin(), step_.requests.end(), request);
  if (found == step_.requests.end()) return;
  const std::ptrdiff_t offset = found - step_.requests.begin();
  std::vector<ScheduledRequest>& scheduled = step_.output->scheduled_requests;
  step_.token_budget += step_.num_tokens[static_cast<size_t>(offset)];
  step_.requests.erase(found);
  step_.num_tokens.erase(step_.num_tokens.begin() + offset);
  scheduled.erase(scheduled.begin() + offset);
}

void Scheduler::complete_step() {
  SchedulerOutput& output = *step_.output;
  output.scheduled_requests.resize(step_.requests.size());
  output.total_num_scheduled_tokens = 0;
  for (size_t i = 0; i < step_.requests.size(); ++i) {
    Request& request = *step_.requests[i];
    ScheduledRequest& scheduled = output.scheduled_requests[i];
    const auto num_tokens = static_cast<size_t>(step_.num_tokens[i]);
    const auto known =
        request.all_token_ids().subspan(static_cast<size_t>(request.num_computed_tokens));
    const auto token_ids = known.first(std::min(known.size(), num_tokens));
    scheduled.token_ids.assign(token_ids.begin(), token_ids.end());
    scheduled.token_ids.resize(num_tokens, kPlaceholderTokenId);
    request.num_computed_tokens += step_.num_tokens[i];
    scheduled.samples = request.num_computed_tokens == request.num_tokens_with_placeholders();
    if (scheduled.samples) ++request.num_output_placeholders;
    output.total_num_scheduled_tokens += step_.num_tokens[i];
  }
  output.preempted_request_ids.clear();
  output.preempted_request_ids.swap(preempted_request_ids_);
  output.finished_request_ids.clear();
  output.finished_request_ids.swap(finished_request_ids_);
}

const std::vector<RequestOutput>& Scheduler::update_from_output(
    const SchedulerOutput& scheduler_output, const ModelRunnerOutput& model_runner_output) {
  size_t num_outputs = 0;
  size_t position = 0;
  bool any_finished = false;
  auto sampled = model_runner_output.sampled_tokens.begin();
  const auto end = model_runner_output.sampled_tokens.end();
  auto prompt = model_runner_output.prompt_logprobs.begin();
  const auto prompt_end = model_runner_output.prompt_logprobs.end();
  auto pooled = model_runner_output.embeddings.begin();
  const auto pooled_end = model_runner_output.embeddings.end();
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    Request* request = find_scheduled(scheduled, position);
    const PromptLogprobs* prompt_logprobs = nullptr;
    if (prompt != prompt_end && prompt->request_id == scheduled.request_id) {
      prompt_logprobs = &*prompt++;
    }
    if (!scheduled.samples && prompt_logprobs == nullptr) continue;
    const bool has_token = sampled != end && sampled->request_id == scheduled.request_id;
    const SampledToken* token = has_token ? &*sampled++ : nullptr;
    const bool is_pooled = pooled != pooled_end && pooled->request_id == scheduled.request_id;
    const Embedding* embedding = is_pooled ? &*pooled++ : nullptr;
    if (request == nullptr) continue;

    const bool is_running = request->status == RequestStatus::RUNNING;
    if (scheduled.samples) --request->num_output_placeholders;
    const bool has_result = request->pooling.has_value()
                                ? embedding != nullptr && !embedding->failed
                                : token != nullptr && !token->failed && token->token_id >= 0;
    const bool failed = (scheduled.samples && !has_result) ||
                        (prompt_logprobs != nullptr && prompt_logprobs->failed);
    if (failed) {
      request->status = RequestStatus::FINISHED_ERROR;
    } else if (token != nullptr) {
      request->append_output_token_id(token->token_id);
      check_for_end(*request, token->token_id);
    } else if (embedding != nullptr) {
      request->status = RequestStatus::FINISHED_STOPPED;
    }
    if (request->finished()) {
      if (!is_running) waiting_.remove_request(request);
      finish(*request, request->status);
      any_finished = true;
    } else if (is_running) {
      kv_cache_manager_.register_full_blocks(*request, request->num_computed_tokens);
    }
    RequestOutput& output = entry_at(outputs_, num_outputs++);
    fill_output(*request, output);
    if (failed) continue;
    if (token != nullptr) {
      output.new_token_ids.push_back(token->token_id);
      if (token->logprobs.has_value()) output.new_logprobs.push_back(*token->logprobs);
    }
    if (embedding != nullptr) output.embedding = embedding->values;
    if (prompt_logprobs != nullptr) {
      output.prompt_logprobs = prompt_logprobs->tokens;
      request->num_prompt_logprobs += static_cast<int32_t>(prompt_logprobs->tokens.size());
    }
  }
  outputs_.resize(num_outputs);
  if (any_finished) forget_finished();
  return outputs_;
}

std::vector<RequestOutput> Scheduler::fail_step(const SchedulerOutput& scheduler_output) {
  std::vector<std::string> ids;
  for (const ScheduledRequest& scheduled : scheduler_output.scheduled_requests) {
    ids.push_back(scheduled.request_id);
  }
  std::vector<RequestOutput> outputs = finish_requests(ids, RequestStatus::FINISHED_ERROR);
  while (!running_.empty()) {
    running_.back()->num_output_placeholders = 0;
    preempt(running_.size() - 1);
  }
  reset_prefix_cache();
  return outputs;
}

// The request that the entry is about, or nullptr if it was finished since. Entries stand in the
// order of running_, so position, which goes along, saves most look-ups.
Request* Scheduler::find_scheduled(const ScheduledRequest& scheduled, size_t& position) {
  if (position < running_.size() && running_[position]->request_id == scheduled.request_id) {
    return running_[position++];
  }
  Request* request = find(scheduled.request_id);
  return request != nullptr && request->status != RequestStatus::WAITING ? request : nullptr;
}

void Scheduler::forget_finished() {
  std::erase_if(running_, [](const Request* request) { return request->finished(); });
  for (const RequestOutput& output : outputs_) {
    if (output.finished()) requests_.erase(requests_.find(std::string_view(output.request_id)));
  }
}

// min_tokens does not count here: until then the sampler chooses no end id.
void Scheduler::check_for_end(Request& request, int32_t token_id) const {
  const SamplingParams& params = request.sampling_params;
  if (token_id == request.eos_token_id && !params.ignore_eos) {
    request.status = RequestStatus::FINISHED_STOPPED;
  } else if (request.is_stop_token_id(token_id)) {
    request.status = RequestStatus::FINISHED_STOPPED;
    request.stop_reason = token_id;
  } else if (reaches_length(request, request.num_tokens())) {
    request.status = RequestStatus::FINISHED_LENGTH;
  }
}

bool Scheduler::reaches_length(const Request& request, int32_t num_tokens) const {
  return num_tokens >= config_.max_model_len ||
         num_tokens - request.num_prompt_tokens >= request.sampling_params.max_tokens;
}

// Frees what the request holds. The caller takes it out of its queue and of requests_.
void Scheduler::finish(Request& request, RequestStatus status) {
  request.status = status;
  if (status == RequestStatus::FINISHED_ERROR) kv_cache_manager_.drop_keys(request, 0);
  kv_cache_manager_.free(request);
  finished_request_ids_.push_back(request.request_id);
}

const Request* Scheduler::find_request(std::string_view request_id) const {
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? nullptr : found->second.get();
}

Request* Scheduler::find(std::string_view request_id) {
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? nullptr : found->second.get();
}

SchedulerStats Scheduler::stats() const {
  const BlockPool& pool = kv_cache_manager_.block_pool();
  const PrefixCacheStats& prefix = kv_cache_manager_.prefix_cache_stats();
  return {.num_running_requests = static_cast<int32_t>(running_.size()),
          .num_waiting_requests = static_cast<int32_t>(waiting_.size()),
          .num_usable_blocks = pool.num_usable_blocks(),
          .num_free_blocks = pool.num_free_blocks(),
          .num_cached_blocks = pool.num_cached_blocks(),
          .prefix_cache_queried_tokens = prefix.num_queried_tokens,
          .prefix_cache_hit_tokens = prefix.num_hit_tokens,
          .num_preemptions = num_preemptions_};
}

std::vector<std::string> Scheduler::running_request_ids() const {
  std::vector<std::string> ids;
  for (const Request* request : running_) ids.push_back(request->request_id);
  return ids;
}

}  // namespace pinfer
