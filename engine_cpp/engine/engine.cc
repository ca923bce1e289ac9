#include "engine/engine.h"

#include <algorithm>
#include <cmath>

#include "csrc/threads/cpu_count.h"
#include "csrc/threads/cpu_list.h"
#include "engine/bad_words.h"
#include "engine/cache_size.h"
#include "engine/signal_mask.h"
#include "executor/cuda_model_runner.h"
#include "executor/model_runner.h"

namespace pinfer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStallToTellOf{5000};

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Vocabularies are padded to round sizes: ids that the tokenizer does not know are never sampled.
std::vector<int32_t> ids_without_token(const Tokenizer& tokenizer, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!tokenizer.has_token(id)) ids.push_back(id);
  }
  return ids;
}

// Why a request may hold fewer blocks than its length says; "" where all layers see all tokens.
std::string groups_text(const KVCacheConfig& config) {
  std::string windows;
  for (const KVCacheGroup& group : config.groups) {
    windows += (windows.empty() ? "" : ", ") + std::to_string(group.spec.sliding_window);
  }
  if (windows == "0") return "";
  const std::string count = std::to_string(config.num_groups());
  return "; " + count + " groups of layers, with windows of " + windows + " tokens (0: none)";
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path, EngineOptions options) {
  const Clock::time_point begin = Clock::now();
  PINFER_RETURN_IF_ERROR(options.config.validate());
  std::unique_ptr<Engine> engine(new Engine());
  engine->options_ = std::move(options);
  engine->config_ = engine->options_.config;
  engine->stage_begin_ = begin;
  const VerifyLevel level =
      engine->options_.verify ? VerifyLevel::EVERYTHING : VerifyLevel::SIZES_AND_CODE;
  PINFER_ASSIGN_OR_RETURN(engine->bundle_, Bundle::open(path, level));
  if (!engine->bundle_->manifest().has_text) {
    return Status::failed_precondition(path + ": the bundle holds no text part");
  }
  engine->report(0.2, "manifest");
  PINFER_ASSIGN_OR_RETURN(engine->text_, TextProcessor::open(*engine->bundle_));
  engine->report(0.4, "text");
  if (engine->options_.executor != nullptr) {
    engine->vocab_size_ = engine->text_->tokenizer().vocab_size();
    engine->make_core(uniform_kv_cache_config(1, engine->config_.block_size),
                      std::move(engine->options_.executor));
  } else if (engine->bundle_->manifest().has_model && !engine->options_.text_only) {
    PINFER_RETURN_IF_ERROR(engine->load_model());
  }
  if (engine->has_model()) engine->start();
  engine->report(1.0, "ready");
  engine->load_ms_ = milliseconds_since(begin);
  engine->log(LogLevel::INFO, "loaded " + path + " in " + std::to_string(engine->load_ms_) + " ms");
  return engine;
}

Result<const ShimProvider*> Engine::find_provider() const {
  if (config_.provider == Provider::NATIVE) return &native_provider();
  std::string error;
  const ShimProvider* provider = torch_provider(&error);
  if (provider == nullptr) return Status::failed_precondition("--provider torch: " + error);
  const std::string& wanted = bundle_->manifest().torch_version;
  const std::string found(provider->torch_version());
  if (!wanted.starts_with(found + ".")) {
    return Status::failed_precondition(bundle_->path() + ": compiled with torch " + wanted +
                                       ", --provider torch has found torch " + found);
  }
  return provider;
}

Status Engine::load_model() {
  const Manifest& manifest = bundle_->manifest();
  PINFER_RETURN_IF_ERROR(bundle_->check_runnable(std::string(enum_name(config_.provider))));
  if (config_.block_size != manifest.block_size) {
    return Status::invalid_argument("--block-size " + std::to_string(config_.block_size) +
                                    ": the bundle was compiled for " +
                                    std::to_string(manifest.block_size));
  }
  PINFER_RETURN_IF_ERROR(resolve_max_model_len(manifest.max_model_len, &config_));
  const KVCacheConfig kv_cache_config =
      make_kv_cache_config(manifest.layer_windows(), manifest.block_size, config_.max_model_len);
  std::vector<int> cpus;
  if (std::string error; !config_.cpus.empty() && !read_cpu_list(config_.cpus, &cpus, &error)) {
    return Status::invalid_argument("cpus: " + error);
  }
  bound_cpu_ = cpus.empty() ? -1 : cpus.front();
  if (manifest.device == "cuda") return load_cuda_model(kv_cache_config);
  PINFER_ASSIGN_OR_RETURN(const ShimProvider* provider, find_provider());
  KVCacheShape shape{kv_cache_config.num_tensors(), 0,
                     manifest.num_kv_heads,         manifest.head_dim,
                     manifest.block_size,           manifest.kv_cache_dtype};
  PINFER_RETURN_IF_ERROR(
      resolve_cache_size(kv_cache_config, shape.bytes_per_block(), available_memory(), &config_));
  shape.num_blocks = config_.num_blocks;
  PINFER_RETURN_IF_ERROR(resolve_threads(cpus));
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::load(bundle_, *provider));
  report(0.9, "code");
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<KVCacheMemory> memory, KVCacheMemory::create(shape));
  {
    const SignalMask mask;
    pool_ = std::make_unique<ThreadPool>(config_.threads, std::move(cpus));
  }
  HugePageCopy huge_pages = plan_huge_pages(model->weights->bytes());
  auto runner = std::make_unique<ModelRunner>(std::move(model), kv_cache_config, std::move(memory),
                                              pool_.get(), std::move(huge_pages));
  vocab_size_ = manifest.vocab_size;
  make_core(kv_cache_config, std::move(runner));
  log(LogLevel::INFO, "cache: " + std::to_string(config_.num_blocks) + " blocks of " +
                          std::to_string(config_.block_size) + " tokens, " +
                          std::to_string(shape.bytes_per_block() * shape.num_blocks >> 20) +
                          " MiB when all are used" + groups_text(kv_cache_config));
  return Status();
}

Status Engine::resolve_threads(const std::vector<int>& cpus) {
  const auto num_cpus = static_cast<int32_t>(cpus.size());
  if (num_cpus > 0 && config_.threads > num_cpus) {
    return Status::invalid_argument("threads: expected at most " + std::to_string(num_cpus) +
                                    ", one for each of cpus " + cpu_list_text(cpus) + ", found " +
                                    std::to_string(config_.threads));
  }
  if (config_.threads != 0) return Status();
  const CpuCount count = default_thread_count();
  config_.threads = count.count;
  std::string reason = count.reason;
  if (num_cpus > 0 && num_cpus < count.count) {
    config_.threads = num_cpus;
    reason = "cpus " + cpu_list_text(cpus);
  }
  log(LogLevel::INFO, "threads: " + std::to_string(config_.threads) + " (" + reason + ")");
  return Status();
}

// Small weights stay where they are: the caches hold them. Others move if that takes no more than a
// quarter of the free memory, as the cache does.
HugePageCopy Engine::plan_huge_pages(std::span<const std::byte> weights) const {
  constexpr size_t kFewBytes = size_t{32} << 20;
  if (config_.huge_pages == HugePages::OFF || weights.size() < kFewBytes) return {};
  if (!has_huge_pages()) {
    log(LogLevel::INFO, "huge pages: the system gives none (transparent_hugepage is never)");
    return {};
  }
  const int64_t available = available_memory();
  if (static_cast<int64_t>(weights.size()) > available / 4) {
    log(LogLevel::INFO, "huge pages: none for the weights' " +
                            std::to_string(weights.size() >> 20) +
                            " MiB, more than a quarter of the " + std::to_string(available >> 20) +
                            " MiB available");
    return {};
  }
  return HugePageCopy(weights);
}

// The device's memory holds the weights, then what the largest step needs, then the cache.
Status Engine::load_cuda_model(const KVCacheConfig& kv_cache_config) {
  std::string error;
  const std::shared_ptr<CudaDevice> device = CudaDevice::open(CudaDeviceOptions(), &error);
  if (device == nullptr) {
    return Status::failed_precondition(bundle_->path() + ": compiled for cuda: " + error);
  }
  config_.threads = 1;  // what is computed on the host is little
  const CudaRunnerOptions options = {config_.max_num_seqs, config_.max_num_batched_tokens,
                                     config_.max_model_len, config_.max_cuda_graph_seqs};
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<CudaModelRunner> runner,
                          CudaModelRunner::create(device, bundle_, kv_cache_config, options));
  CudaKVCacheShape shape = runner->cache_shape();
  int64_t cache_bytes = 0;
  if (config_.num_blocks == 0) {
    PINFER_RETURN_IF_ERROR(runner->measure());
    size_t free_bytes = 0, total_bytes = 0;
    PINFER_RETURN_IF_ERROR(cuda_status(device->memory_info(&free_bytes, &total_bytes)));
    const auto spared = static_cast<size_t>((1 - config_.gpu_memory_utilization) *
                                            static_cast<double>(total_bytes));
    cache_bytes = static_cast<int64_t>(free_bytes - std::min(free_bytes, spared));
  }
  PINFER_RETURN_IF_ERROR(
      resolve_device_cache_size(kv_cache_config, shape.bytes_per_block(), cache_bytes, &config_));
  shape.num_blocks = config_.num_blocks;
  PINFER_ASSIGN_OR_RETURN(std::unique_ptr<CudaKVCache> cache, CudaKVCache::create(device, shape));
  runner->set_cache(std::move(cache));
  vocab_size_ = bundle_->manifest().vocab_size;
  make_core(kv_cache_config, std::move(runner));
  log(LogLevel::INFO, "device: " + device->name() + ", sm_" + std::to_string(device->arch()));
  log(LogLevel::INFO, "cache: " + std::to_string(config_.num_blocks) + " blocks of " +
                          std::to_string(config_.block_size) + " tokens, " +
                          std::to_string(shape.bytes_per_block() * shape.num_blocks >> 20) +
                          " MiB of device memory" + groups_text(kv_cache_config));
  return Status();
}

void Engine::make_core(KVCacheConfig kv_cache_config, std::unique_ptr<Executor> executor) {
  core_ = std::make_unique<EngineCore>(config_, std::move(kv_cache_config), std::move(executor),
                                       Sampler(ids_without_token(text_->tokenizer(), vocab_size_)),
                                       bundle_->manifest().task == Task::EMBED);
}

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

void Engine::report(double fraction, const char* stage) {
  load_stages_.push_back({stage, milliseconds_since(stage_begin_)});
  stage_begin_ = Clock::now();
  if (options_.progress) options_.progress(fraction, stage);
}

void Engine::log(LogLevel level, const std::string& message) const {
  if (options_.log) options_.log(level, message);
}

}  // namespace pinfer
