#include "scheduler/replay.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace pinfer {
namespace {

using Json = nlohmann::ordered_json;

EngineConfig read_config(const Json& json) {
  EngineConfig config;
  config.block_size = json.value("block_size", config.block_size);
  config.num_blocks = json.at("num_blocks");
  config.max_model_len = json.at("max_model_len");
  config.max_num_seqs = json.value("max_num_seqs", config.max_num_seqs);
  config.max_num_batched_tokens =
      json.value("max_num_batched_tokens", config.max_num_batched_tokens);
  config.scheduling_policy = parse_enum<SchedulingPolicy>(json.value("policy", "fcfs")).value();
  config.enable_prefix_caching = json.value("enable_prefix_caching", config.enable_prefix_caching);
  config.long_prefill_token_threshold =
      json.value("long_prefill_token_threshold", config.long_prefill_token_threshold);
  config.watermark = json.value("watermark", config.watermark);
  config.async_scheduling = json.value("async_scheduling", config.async_scheduling);
  config.scheduler_reserve_full_isl =
      json.value("scheduler_reserve_full_isl", config.scheduler_reserve_full_isl);
  if (const Status status = config.validate(); !status.ok()) {
    throw std::invalid_argument(status.message());
  }
  return config;
}

KVCacheConfig read_kv_cache_config(const Json& json) {
  const EngineConfig config = read_config(json);
  const auto windows = json.value("layer_windows", std::vector<int32_t>{0});
  if (windows.empty()) throw std::invalid_argument("layer_windows is empty");
  return make_kv_cache_config(windows, config.block_size, config.max_model_len);
}

std::vector<int32_t> read_prompt(const Json& json) {
  if (!json.contains("prompt_ranges")) {
    return json.at("prompt_token_ids").get<std::vector<int32_t>>();
  }
  std::vector<int32_t> token_ids;
  for (const auto& [first, count] : json["prompt_ranges"].get<std::vector<std::pair<int, int>>>()) {
    for (int32_t i = 0; i < count; ++i) token_ids.push_back(first + i);
  }
  return token_ids;
}

std::unique_ptr<Request> read_request(const Json& json) {
  SamplingParams params;
  params.max_tokens = json.value("max_tokens", params.max_tokens);
  params.min_tokens = json.value("min_tokens", params.min_tokens);
  params.ignore_eos = json.value("ignore_eos", params.ignore_eos);
  params.stop_token_ids = json.value("stop_token_ids", params.stop_token_ids);
  RequestOptions options;
  options.eos_token_ids = json.value("eos_token_ids", options.eos_token_ids);
  if (json.contains("eos_token_id")) options.eos_token_ids = {json["eos_token_id"].get<int32_t>()};
  options.priority = json.value("priority", options.priority);
  options.arrival_time = json.value("arrival_time", options.arrival_time);
  options.cache_salt = json.value("cache_salt", options.cache_salt);
  return std::make_unique<Request>(json.at("request_id").get<std::string>(), read_prompt(json),
                                   std::move(params), std::move(options));
}

int64_t arrival_step(const Json& request) { return request.value("arrival_step", int64_t{0}); }

int32_t sampled_token_id(const Json& request, size_t index) {
  if (!request.contains("sampled_token_ids")) return 1000 + static_cast<int32_t>(index);
  return request["sampled_token_ids"].at(index);
}

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

const char* kind_name(ScheduledKind kind) {
  switch (kind) {
    case ScheduledKind::NEW:
      return "new";
    case ScheduledKind::RESUMED:
      return "resumed";
    case ScheduledKind::RUNNING:
      return "running";
  }
  return "";
}

// Recorded traces have one group of layers and say its block ids alone.
Json block_ids_json(const std::vector<std::vector<int32_t>>& block_ids) {
  return block_ids.size() == 1 ? Json(block_ids.front()) : Json(block_ids);
}

class Replay {
 public:
  explicit Replay(const Json& trace)
      : trace_(trace),
        async_scheduling_(read_config(trace.at("config")).async_scheduling),
        scheduler_(read_config(trace.at("config")), read_kv_cache_config(trace.at("config"))) {
    for (const Json& request : trace.at("requests")) {
      request_json_[request.at("request_id").get<std::string>()] = &request;
      last_arrival_ = std::max(last_arrival_, arrival_step(request));
    }
  }

  Json run() {
    const bool has_steps = trace_.contains("steps");
    const int64_t num_steps = has_steps ? static_cast<int64_t>(trace_["steps"].size())
                                        : trace_.at("max_steps").get<int64_t>();
    Json steps = Json::array();
    for (int64_t step = 0; step < num_steps; ++step) {
      if (!has_steps && step > last_arrival_ && !scheduler_.has_unfinished_requests()) break;
      steps.push_back(run_step(step));
    }
    const BlockPool& pool = scheduler_.kv_cache_manager().block_pool();
    return {{"steps", std::move(steps)},
            {"final_free_block_ids", pool.free_block_ids()},
            {"final_cached_block_ids", pool.cached_block_ids()},
            {"final_token_ids", token_ids_},
            {"final_stats", stats_json()}};
  }

 private:
  Json run_step(int64_t step) {
    Json result = {{"step", step}};
    finished_ = Json::array();
    add_requests(step, result);
    abort_requests(step, "pre");
    reset_prefix_cache(step, result);
    const SchedulerOutput& output = scheduler_.schedule();
    abort_requests(step, "mid");
    const SchedulerOutput* last = std::exchange(in_flight_, &output);
    const SchedulerOutput* computed = async_scheduling_ ? last : &output;
    if (computed != nullptr) {
      add_outputs(scheduler_.update_from_output(*computed, sample(*computed)));
    }

    Json scheduled = Json::array();
    Json num_cached_tokens = Json::object();
    for (const ScheduledRequest& request : output.scheduled_requests) {
      scheduled.push_back({{"request_id", request.request_id},
                           {"num_scheduled_tokens", request.num_scheduled_tokens()},
                           {"num_computed_tokens", request.num_computed_tokens},
                           {"kind", kind_name(request.kind)},
                           {"new_block_ids", block_ids_json(request.new_block_ids)}});
      if (request.kind != ScheduledKind::RUNNING) {
        num_cached_tokens[request.request_id] = request.num_computed_tokens;
      }
    }
    result["scheduled"] = std::move(scheduled);
    result["preempted"] = output.preempted_request_ids;
    result["finished"] = std::move(finished_);
    result["running"] = scheduler_.running_request_ids();
    result["waiting"] = scheduler_.waiting_request_ids();
    result["num_free_blocks"] = scheduler_.stats().num_free_blocks;
    result["num_cached_tokens"] = std::move(num_cached_tokens);
    return result;
  }

  void add_requests(int64_t step, Json& result) {
    for (const Json& request : trace_["requests"]) {
      if (arrival_step(request) != step) continue;
      const Status status = scheduler_.add_request(read_request(request));
      if (status.ok()) continue;
      result["refused"].push_back(
          {{"request_id", request["request_id"]}, {"message", status.message()}});
    }
  }

  void abort_requests(int64_t step, std::string_view phase) {
    for (const Json& request : trace_["requests"]) {
      if (!request.contains("abort_step") || request["abort_step"] != step) continue;
      if (request.value("abort_phase", "pre") != phase) continue;
      const std::vector<std::string> ids = {request["request_id"].get<std::string>()};
      add_outputs(scheduler_.finish_requests(ids, RequestStatus::FINISHED_ABORTED));
    }
  }

  void reset_prefix_cache(int64_t step, Json& result) {
    if (!trace_.contains("reset_prefix_cache_steps")) return;
    for (const Json& reset_step : trace_["reset_prefix_cache_steps"]) {
      if (reset_step == step) result["reset_prefix_cache"] = scheduler_.reset_prefix_cache();
    }
  }

  // Stands in for the model: the recorded tokens, one for each request that samples.
  ModelRunnerOutput sample(const SchedulerOutput& output) const {
    ModelRunnerOutput sampled;
    for (const ScheduledRequest& scheduled : output.scheduled_requests) {
      if (!scheduled.samples) continue;
      SampledToken token;
      token.request_id = scheduled.request_id;
      const Request* request = scheduler_.find_request(scheduled.request_id);
      if (request != nullptr) {  // else aborted since
        const Json& json = *request_json_.at(scheduled.request_id);
        const auto index = static_cast<size_t>(request->num_output_tokens());
        token.failed = json.contains("fails_at") && json["fails_at"] == index;
        token.token_id = sampled_token_id(json, index);
      }
      sampled.sampled_tokens.push_back(std::move(token));
    }
    return sampled;
  }

  void add_outputs(const std::vector<RequestOutput>& outputs) {
    for (const RequestOutput& output : outputs) {
      std::vector<int32_t>& token_ids = token_ids_[output.request_id];
      token_ids.insert(token_ids.end(), output.new_token_ids.begin(), output.new_token_ids.end());
      if (!output.finished()) continue;
      finished_.push_back({{"request_id", output.request_id},
                           {"finish_reason", output.finish_reason},
                           {"stop_reason", optional_json(output.stop_reason)}});
    }
  }

  Json stats_json() const {
    const SchedulerStats stats = scheduler_.stats();
    return {{"num_usable_blocks", stats.num_usable_blocks},
            {"num_free_blocks", stats.num_free_blocks},
            {"num_cached_blocks", stats.num_cached_blocks},
            {"prefix_cache_queried_tokens", stats.prefix_cache_queried_tokens},
            {"prefix_cache_hit_tokens", stats.prefix_cache_hit_tokens},
            {"num_preemptions", stats.num_preemptions}};
  }

  const Json& trace_;
  const bool async_scheduling_;
  Scheduler scheduler_;
  const SchedulerOutput* in_flight_ = nullptr;             // scheduled last
  std::map<std::string, std::vector<int32_t>> token_ids_;  // of each request, sampled so far
  std::map<std::string, const Json*> request_json_;
  int64_t last_arrival_ = -1;
  Json finished_;  // of the step that runs
};

}  // namespace

std::string replay_trace_json(std::string_view trace) {
  try {
    const Json json = Json::parse(trace);
    return Replay(json).run().dump();
  } catch (const std::exception& error) {
    return Json{{"error", error.what()}}.dump();
  }
}

}  // namespace pinfer
