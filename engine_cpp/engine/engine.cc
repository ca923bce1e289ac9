#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include "csrc/threads/cpu_list.h"
#include "engine/bad_words.h"
#include "engine/signal_mask.h"

namespace pinfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStallToTellOf{5000};

}  // namespace

void Engine::start() {
  const SignalMask mask;
  outputs_ = std::make_unique<OutputProcessor>(
      text_->tokenizer(), bundle_->manifest().eos_token_ids,
      [this](const std::string& id) { finish(id, RequestStatus::FINISHED_STOPPED); });
  metrics_.scheduler = core_->stats();
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() { shutdown(); }

void Engine::shutdown() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  outputs_->abort_all();
  outputs_.reset();  // its thread calls finish() until it has ended
}

SamplingParams Engine::default_sampling_params() const {
  const GenerationDefaults& defaults = bundle_->manifest().generation_defaults;
  SamplingParams params;
  params.temperature = defaults.temperature.value_or(params.temperature);
  params.top_p = defaults.top_p.value_or(params.top_p);
  params.top_k = defaults.top_k.value_or(params.top_k);
  params.min_p = defaults.min_p.value_or(params.min_p);
  params.repetition_penalty = defaults.repetition_penalty.value_or(params.repetition_penalty);
  return params;
}

Status Engine::check_prompt(const GenerateRequest& request) const {
  const auto size = static_cast<int64_t>(request.prompt_token_ids.size());
  if (size == 0) return Status::invalid_argument("the prompt has no tokens");
  if (size >= config_.max_model_len) {
    return Status::invalid_argument("context_length_exceeded: the prompt has " +
                                    std::to_string(size) + " tokens, the context holds " +
                                    std::to_string(config_.max_model_len) +
                                    " with at least one of output");
  }
  PINFER_RETURN_IF_ERROR(check_ids(request.prompt_token_ids));
  PINFER_RETURN_IF_ERROR(request.sampling_params.validate_token_ids(vocab_size_));
  return check_allowed_tokens(request.sampling_params);
}

Status Engine::check_ids(const std::vector<int32_t>& token_ids) const {
  for (const int32_t id : token_ids) {
    if (id < 0 || id >= vocab_size_) {
      return Status::invalid_argument("prompt token id " + std::to_string(id) + ": expected 0 to " +
                                      std::to_string(vocab_size_ - 1));
    }
  }
  return Status();
}

// Without any token to sample, the request would fail in its first step.
Status Engine::check_allowed_tokens(const SamplingParams& params) const {
  const auto is_banned = [&](int32_t id) {
    return std::find(params.bad_words_token_ids.begin(), params.bad_words_token_ids.end(),
                     std::vector<int32_t>{id}) != params.bad_words_token_ids.end();
  };
  for (const int32_t id : params.allowed_token_ids) {
    if (text_->tokenizer().has_token(id) && !is_banned(id)) return Status();
  }
  if (params.allowed_token_ids.empty()) return Status();
  return Status::invalid_argument(
      "allowed_token_ids: none of the ids has a token that may be used");
}

Status Engine::check_queue(int64_t num_prompt_tokens) const {
  if (draining_) return Status::failed_precondition("the engine is shutting down");
  if (options_.max_queue > 0 && queued_.size() >= static_cast<size_t>(options_.max_queue)) {
    return Status::resource_exhausted("the queue is full: " + std::to_string(queued_.size()) +
                                      " requests wait (--max-queue)");
  }
  const int64_t tokens = metrics_.num_queued_tokens + num_prompt_tokens;
  // A prompt alone is taken whatever its length.
  if (options_.max_queue_tokens > 0 && !queued_.empty() && tokens > options_.max_queue_tokens) {
    return Status::resource_exhausted(
        "the queue is full: " + std::to_string(metrics_.num_queued_tokens) +
        " prompt tokens wait (--max-queue-tokens)");
  }
  return Status();
}

void Engine::leave_queue(const std::string& request_id) {
  const auto entry = queued_.find(request_id);
  if (entry == queued_.end()) return;
  metrics_.num_queued_tokens -= entry->second;
  queued_.erase(entry);
}

Status Engine::check_task(Task task) const {
  const Manifest& manifest = bundle_->manifest();
  if (core_ == nullptr) {
    return Status::failed_precondition(bundle_->path() + ": only the text part is open" +
                                       (manifest.has_model ? "" : " (the bundle holds no model)"));
  }
  if (task == manifest.task) return Status();
  return Status::failed_precondition(
      bundle_->path() + (manifest.task == Task::EMBED
                             ? ": the model embeds (task embed) and generates no text"
                             : ": the model generates text (task generate) and does not embed"));
}

Result<RequestHandle> Engine::submit(GenerateRequest request) {
  PINFER_RETURN_IF_ERROR(check_task(Task::GENERATE));
  SamplingParams& params = request.sampling_params;
  PINFER_ASSIGN_OR_RETURN(params.bad_words_token_ids,
                          bad_words_token_ids(text_->tokenizer(), request.bad_words));
  PINFER_RETURN_IF_ERROR(check_prompt(request));
  const int32_t room =
      config_.max_model_len - static_cast<int32_t>(request.prompt_token_ids.size());
  if (params.max_tokens == 0 || params.max_tokens > room) {
    params.max_tokens = room;
    params.min_tokens = std::min(params.min_tokens, room);
  }
  PINFER_RETURN_IF_ERROR(params.validate());
  request.text.min_tokens = params.min_tokens;

  RequestOptions options;
  options.eos_token_ids = bundle_->manifest().eos_token_ids;
  options.priority = request.priority;
  options.cache_salt = std::move(request.cache_salt);
  options.choice_index = request.choice_index;
  return enqueue({std::move(request.prompt_token_ids), std::move(params), std::move(request.text),
                  std::move(options), std::move(request.callback)});
}

Result<RequestHandle> Engine::embed(EmbedRequest request) {
  PINFER_RETURN_IF_ERROR(check_task(Task::EMBED));
  const Manifest& manifest = bundle_->manifest();
  const auto size = static_cast<int64_t>(request.token_ids.size());
  if (size == 0) return Status::invalid_argument("the input has no tokens");
  if (size > config_.max_model_len) {
    return Status::invalid_argument("context_length_exceeded: the input has " +
                                    std::to_string(size) + " tokens, the context holds " +
                                    std::to_string(config_.max_model_len));
  }
  PINFER_RETURN_IF_ERROR(check_ids(request.token_ids));
  if (request.dimensions < 0 || request.dimensions > manifest.hidden_size) {
    return Status::invalid_argument("dimensions: expected 1 to " +
                                    std::to_string(manifest.hidden_size) + ", found " +
                                    std::to_string(request.dimensions));
  }
  RequestOptions options;
  options.priority = request.priority;
  options.cache_salt = std::move(request.cache_salt);
  options.pooling =
      PoolingParams{manifest.pooling.mode, manifest.pooling.normalize, request.dimensions};
  return enqueue({std::move(request.token_ids), SamplingParams(), TextOptions(), std::move(options),
                  std::move(request.callback)});
}

Result<RequestHandle> Engine::enqueue(Submission submission) {
  RequestHandle handle;
  handle.stream = std::make_shared<RequestStream>(std::move(submission.callback));
  const SamplingParams& params = submission.params;
  const auto num_prompt_tokens = static_cast<int64_t>(submission.token_ids.size());
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    PINFER_RETURN_IF_ERROR(check_queue(num_prompt_tokens));
    submission.options.arrival_time = next_arrival_time();
    handle.id = "r" + std::to_string(next_id_++);
    metrics_.num_queued_tokens += num_prompt_tokens;
    queued_.emplace(handle.id, num_prompt_tokens);
    outputs_->add_request(handle.id, submission.token_ids, submission.text, params.ignore_eos,
                          params.stop_token_ids, handle.stream);
    Command command;
    command.request = std::make_unique<Request>(handle.id, std::move(submission.token_ids), params,
                                                std::move(submission.options));
    commands_.push_back(std::move(command));
  }
  changed_.notify_one();
  return handle;
}

// Later than every one before: under the priority policy two requests of one priority and one
// arrival time could preempt each other for ever.
double Engine::next_arrival_time() {
  const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  last_arrival_time_ = std::max(now, std::nextafter(last_arrival_time_, now + 1));
  return last_arrival_time_;
}

void Engine::abort(const std::string& request_id) {
  finish(request_id, RequestStatus::FINISHED_ABORTED);
}

void Engine::finish(const std::string& request_id, RequestStatus status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Command command;
    command.finish_id = request_id;
    command.finish_status = status;
    commands_.push_back(std::move(command));
  }
  changed_.notify_one();
}

bool Engine::drain(std::chrono::milliseconds timeout) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
  }
  return outputs_ == nullptr || outputs_->wait_until_empty(timeout);
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return metrics_;
}

// The engine thread: take commands, step, pass outputs on; sleep while there is nothing to do.
void Engine::run() {
  if (bound_cpu_ >= 0) bind_thread(bound_cpu_);
  bool busy = false;
  for (;;) {
    std::deque<Command> commands;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !commands_.empty() || busy; });
      if (stopping_) break;
      commands.swap(commands_);
    }
    take_commands(std::move(commands));
    if (core_->has_work()) {
      const Clock::time_point begin = Clock::now();
      std::vector<RequestOutput> outputs = core_->step();
      outputs_->note_started(core_->started_request_ids(), begin);
      count(outputs, 1);
      watch_for_stall();
      const bool failed = !core_->step_error().ok();
      outputs_->push(std::move(outputs), failed ? core_->step_error().message()
                                                : "what the model computed is not finite");
    }
    busy = core_->has_work();
  }
}

void Engine::take_commands(std::deque<Command> commands) {
  for (Command& command : commands) {
    std::vector<RequestOutput> outputs;
    std::string message;
    if (command.request != nullptr) {
      RequestOutput refused;
      refused.request_id = command.request->request_id;
      const Status status = core_->add_request(std::move(command.request));
      if (status.ok()) continue;
      refused.finish_reason = "error";
      message = status.message();
      outputs.push_back(std::move(refused));
    } else {
      const std::string ids[] = {command.finish_id};
      outputs = core_->finish_requests(ids, command.finish_status);
    }
    count(outputs, 0);
    pass_on(std::move(outputs), message);
  }
}

void Engine::pass_on(std::vector<RequestOutput> outputs, const std::string& error_message) {
  for (const RequestOutput& output : outputs) {
    if (output.finish_reason == "error") {
      log(LogLevel::ERROR, output.request_id + ": " + error_message);
    }
  }
  outputs_->push(std::move(outputs), error_message);
}

void Engine::count(const std::vector<RequestOutput>& outputs, int num_steps) {
  const SchedulerStats stats = core_->stats();
  const std::lock_guard<std::mutex> lock(mutex_);
  metrics_.scheduler = stats;
  metrics_.num_steps += num_steps;
  if (num_steps > 0) {
    for (const std::string& request_id : core_->started_request_ids()) {
      const auto entry = queued_.find(request_id);
      if (entry != queued_.end()) metrics_.prompt_tokens += entry->second;
      leave_queue(request_id);
    }
  }
  for (const RequestOutput& output : outputs) {
    metrics_.generation_tokens += static_cast<int64_t>(output.new_token_ids.size());
    if (!output.finished()) continue;
    leave_queue(output.request_id);
    if (output.finish_reason == "stop") ++metrics_.finished_stop;
    if (output.finish_reason == "length") ++metrics_.finished_length;
    if (output.finish_reason == "abort") ++metrics_.finished_abort;
    if (output.finish_reason == "error") ++metrics_.finished_error;
  }
}

void Engine::watch_for_stall() {
  const SchedulerStats stats = core_->stats();
  const std::chrono::milliseconds stalled =
      stall_watch_.update(Clock::now(), stats.num_running_requests, stats.num_waiting_requests);
  if (stalled > kStallToTellOf && !told_of_stall_) {
    log(LogLevel::ERROR, std::to_string(stats.num_waiting_requests) +
                             " requests wait and none runs; free cache blocks: " +
                             std::to_string(stats.num_free_blocks));
  }
  told_of_stall_ = stalled > kStallToTellOf;
  const std::lock_guard<std::mutex> lock(mutex_);
  metrics_.stalled = stalled;
}

void Engine::log(LogLevel level, const std::string& message) const {
  if (options_.log) options_.log(level, message);
}

}  // namespace pinfer
