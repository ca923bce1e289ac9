// The engine as the public interface sees it: opens a bundle, takes requests, streams output.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "bundle/bundle.h"
#include "core/engine_config.h"
#include "core/huge_pages.h"
#include "core/request.h"
#include "csrc/shim/provider.h"
#include "csrc/threads/thread_pool.h"
#include "engine/engine_core.h"
#include "engine/output_processor.h"
#include "engine/request_stream.h"
#include "engine/stall_watch.h"
#include "engine/text_processor.h"

namespace pinfer {

enum class LogLevel { DEBUG, INFO, WARNING, ERROR };

struct LoadStage {
  const char* name;
  double ms;
};

struct EngineOptions {
  EngineConfig config;
  bool verify = false;           // check the hash of every file
  bool text_only = false;        // leave the model alone, also if the bundle has one
  int32_t max_queue = 0;         // requests waiting at once; 0 = no limit
  int64_t max_queue_tokens = 0;  // their prompt tokens; 0 = no limit
  std::function<void(LogLevel, const std::string&)> log;
  std::function<void(double, const char*)> progress;
  // In place of the bundle's model, for tests of all that stands around it. REQUIRES: config names
  // max_model_len and num_blocks.
  std::unique_ptr<Executor> executor;
};

struct GenerateRequest {
  std::vector<int32_t> prompt_token_ids;
  SamplingParams sampling_params;  // max_tokens 0: the rest of the context
  TextOptions text;
  int32_t priority = 0;
  std::string cache_salt;
  int32_t choice_index = 0;            // which of n: has its own random stream
  std::vector<std::string> bad_words;  // texts that are never completed
  RequestStream::Callback callback;
};

struct EmbedRequest {
  std::vector<int32_t> token_ids;
  int32_t dimensions = 0;  // leading ones that are kept; 0: all
  int32_t priority = 0;
  std::string cache_salt;
  RequestStream::Callback callback;
};

// A request that has been submitted.
struct RequestHandle {
  std::string id;
  std::shared_ptr<RequestStream> stream;
};

struct EngineMetrics {
  SchedulerStats scheduler;
  int64_t num_queued_tokens = 0;  // prompt tokens of requests that wait for their first step
  int64_t prompt_tokens = 0, generation_tokens = 0, num_steps = 0;
  std::chrono::milliseconds stalled{0};  // requests wait and nothing runs, for so long
  int64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
};

// Threads: any thread may call the methods. One engine thread owns scheduler and model; one output
// thread detokenises; the compute pool belongs to the engine thread.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const std::string& path, EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // INVALID_ARGUMENT for a bad prompt or bad parameters, RESOURCE_EXHAUSTED for a full queue,
  // FAILED_PRECONDITION while draining, without a model, or with one that embeds.
  Result<RequestHandle> submit(GenerateRequest request);
  // The same for an embedding, which comes with the last output. FAILED_PRECONDITION with a model
  // that generates.
  Result<RequestHandle> embed(EmbedRequest request);
  // Harmless for requests that are unknown or have ended.
  void abort(const std::string& request_id);

  // Refuses new requests from now on and waits for the others; false if the time ran out.
  bool drain(std::chrono::milliseconds timeout);

  // Aborts what still runs and joins the threads. REQUIRES: no other call but abort() is running.
  void shutdown();

  // The model's defaults: its generation config over ours.
  SamplingParams default_sampling_params() const;

  // FAILED_PRECONDITION, saying what to use, unless a model for this task is open.
  Status check_task(Task task) const;

  const Bundle& bundle() const { return *bundle_; }
  const TextProcessor& text() const { return *text_; }
  const EngineConfig& config() const { return config_; }
  bool has_model() const { return core_ != nullptr; }
  double load_ms() const { return load_ms_; }
  // What of it each stage took, in order.
  const std::vector<LoadStage>& load_stages() const { return load_stages_; }
  int num_threads() const { return pool_ ? pool_->num_threads() : 0; }
  EngineMetrics metrics() const;

 private:
  struct Command {
    std::unique_ptr<Request> request;  // null: finish finish_id
    std::string finish_id;
    RequestStatus finish_status = RequestStatus::FINISHED_ABORTED;
  };

  // A request whose values have been checked.
  struct Submission {
    std::vector<int32_t> token_ids;
    SamplingParams params;
    TextOptions text;
    RequestOptions options;
    RequestStream::Callback callback;
  };

  Engine() = default;
  Status load_model();
  Status resolve_threads(const std::vector<int>& cpus);
  HugePageCopy plan_huge_pages(std::span<const std::byte> weights) const;
  Status load_cuda_model(const KVCacheConfig& kv_cache_config);
  void make_core(KVCacheConfig kv_cache_config, std::unique_ptr<Executor> executor);
  Result<const ShimProvider*> find_provider() const;
  void start();
  void run();
  void take_commands(std::deque<Command> commands);
  void finish(const std::string& request_id, RequestStatus status);
  // Hands outputs to the output thread; failed requests leave a log line.
  void pass_on(std::vector<RequestOutput> outputs, const std::string& error_message);
  void count(const std::vector<RequestOutput>& outputs, int num_steps);
  void watch_for_stall();
  double next_arrival_time();
  Result<RequestHandle> enqueue(Submission submission);
  Status check_prompt(const GenerateRequest& request) const;
  Status check_ids(const std::vector<int32_t>& token_ids) const;
  Status check_allowed_tokens(const SamplingParams& params) const;
  Status check_queue(int64_t num_prompt_tokens) const;
  // The request waits no longer: it was scheduled, or has ended.
  void leave_queue(const std::string& request_id);
  // A stage of loading is done.
  void report(double fraction, const char* stage);
  void log(LogLevel level, const std::string& message) const;

  EngineOptions options_;
  EngineConfig config_;  // with sizes and threads resolved
  double load_ms_ = 0;
  std::chrono::steady_clock::time_point stage_begin_;
  std::vector<LoadStage> load_stages_;
  int32_t vocab_size_ = 0;  // of the model
  std::shared_ptr<const Bundle> bundle_;
  std::unique_ptr<TextProcessor> text_;
  std::unique_ptr<ThreadPool> pool_;
  int bound_cpu_ = -1;                // of the engine thread; -1 = none
  std::unique_ptr<EngineCore> core_;  // touched by the engine thread only, once it runs
  std::unique_ptr<OutputProcessor> outputs_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Command> commands_;
  bool stopping_ = false;
  bool draining_ = false;
  int64_t next_id_ = 0;
  double last_arrival_time_ = 0;
  StallWatch stall_watch_;                           // of the engine thread
  bool told_of_stall_ = false;                       // of the engine thread
  std::unordered_map<std::string, int64_t> queued_;  // id -> prompt tokens, until first scheduled
  EngineMetrics metrics_;
  std::thread thread_;
};

}  // namespace pinfer
