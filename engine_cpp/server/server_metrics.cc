#include "server/server_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace pinfer::server {
namespace {

constexpr double kSeconds[] = {0.001, 0.005, 0.01, 0.02,  0.04,  0.06,  0.08, 0.1,
                               0.25,  0.5,   0.75, 1.0,   2.5,   5.0,   7.5,  10.0,
                               20.0,  40.0,  80.0, 160.0, 640.0, 2560.0};
constexpr double kTokenSeconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1,
                                    0.15,  0.2,    0.3,   0.4,  0.5,   0.75, 1.0,   2.5,
                                    5.0,   7.5,    10.0,  20.0, 40.0,  80.0};
constexpr double kLatencySeconds[] = {0.3,  0.5,   0.8,   1.0,   1.5,   2.0,    2.5,
                                      5.0,  10.0,  15.0,  20.0,  30.0,  40.0,   50.0,
                                      60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr double kTokens[] = {1,   2,    5,    10,   20,    50,    100,   200,
                              500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
constexpr double kChoices[] = {1, 2, 5, 10, 20};

std::string number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return std::to_string(static_cast<int64_t>(value));
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  double back = 0;
  for (int digits = 1; digits < 17; ++digits) {  // the shortest that reads back the same
    char shorter[40];
    std::snprintf(shorter, sizeof(shorter), "%.*g", digits, value);
    std::sscanf(shorter, "%lf", &back);
    if (back == value) return shorter;
  }
  return text;
}

// A label's value may hold anything but these three as they are.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

class Page {
 public:
  explicit Page(const std::string& model_name)
      : labels_("model_name=\"" + escaped(model_name) + "\",engine=\"0\"") {}

  void head(const std::string& name, const char* type, const char* help) {
    text_ += "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  }
  void value(const std::string& name, double value, const std::string& more_labels = "") {
    text_ += name + "{" + labels_ + more_labels + "} " + number(value) + "\n";
  }
  void gauge(const std::string& name, const char* help, double value) {
    head(name, "gauge", help);
    this->value(name, value);
  }
  void counter(const std::string& name, const char* help, double value) {
    head(name + "_total", "counter", help);
    this->value(name + "_total", value);
  }
  void histogram(const std::string& name, const char* help, const Histogram& histogram) {
    head(name, "histogram", help);
    histogram.write(name, labels_, &text_);
  }
  void line(const std::string& line) { text_ += line + "\n"; }
  std::string take() { return std::move(text_); }

 private:
  const std::string labels_;
  std::string text_;
};

}  // namespace

void Histogram::add(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<size_t>(bound - bounds_.begin())];
  sum_ += value;
}

void Histogram::write(const std::string& name, const std::string& labels, std::string* out) const {
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    *out += name + "_bucket{" + labels + ",le=\"" + bound + "\"} " + std::to_string(below) + "\n";
  }
  *out += name + "_sum{" + labels + "} " + number(sum_) + "\n";
  *out += name + "_count{" + labels + "} " + std::to_string(below) + "\n";
}

ServerMetrics::ServerMetrics()
    : time_to_first_token_(kSeconds),
      time_per_output_token_(kTokenSeconds),
      e2e_latency_(kLatencySeconds),
      queue_time_(kLatencySeconds),
      prefill_time_(kLatencySeconds),
      decode_time_(kLatencySeconds),
      inference_time_(kLatencySeconds),
      prompt_tokens_(kTokens),
      generation_tokens_(kTokens),
      params_n_(kChoices),
      params_max_tokens_(kTokens) {
  for (const char* reason : {"stop", "length", "abort", "error"}) success_[reason] = 0;
}

void ServerMetrics::add(const FinishedChoice& choice) {
  const std::lock_guard lock(mutex_);
  ++success_[choice.finish_reason];
  prompt_tokens_.add(choice.num_prompt_tokens);
  generation_tokens_.add(choice.num_output_tokens);
  params_n_.add(choice.num_choices);
  if (choice.max_tokens > 0) params_max_tokens_.add(choice.max_tokens);
  queue_time_.add(choice.queue_ms / 1000);
  if (choice.num_output_tokens > 0) {
    time_to_first_token_.add((choice.queue_ms + choice.prefill_ms) / 1000);
    decode_time_.add(choice.decode_ms / 1000);
  }
  if (choice.num_output_tokens > 0 || choice.is_embedding) {
    prefill_time_.add(choice.prefill_ms / 1000);
    inference_time_.add((choice.prefill_ms + choice.decode_ms) / 1000);
  }
  if (choice.num_output_tokens > 1) {
    time_per_output_token_.add(choice.decode_ms / 1000 / (choice.num_output_tokens - 1));
  }
  e2e_latency_.add((choice.queue_ms + choice.prefill_ms + choice.decode_ms) / 1000);
}

void ServerMetrics::add_http(const std::string& method, const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{method, path, std::to_string(status)}];
}

std::string ServerMetrics::text(const std::string& model_name, const pinfer_metrics* engine) const {
  Page page(model_name);
  if (engine != nullptr) {
    const auto usable = static_cast<double>(engine->num_usable_blocks);
    const auto free = static_cast<double>(engine->num_free_blocks);
    page.gauge("vllm:num_requests_running", "Requests that are being computed.",
               static_cast<double>(engine->num_requests_running));
    page.gauge("vllm:num_requests_waiting", "Requests that wait to be computed.",
               static_cast<double>(engine->num_requests_waiting));
    page.gauge("vllm:kv_cache_usage_perc", "Used part of the KV cache, 1 = all.",
               usable > 0 ? (usable - free) / usable : 0);
    page.counter("vllm:num_preemptions", "Requests that lost their cache blocks to others.",
                 static_cast<double>(engine->num_preemptions));
    page.counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.",
                 static_cast<double>(engine->prefix_cache_queries));
    page.counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.",
                 static_cast<double>(engine->prefix_cache_hits));
    page.counter("vllm:prompt_tokens", "Prompt tokens of all requests.",
                 static_cast<double>(engine->prompt_tokens));
    page.counter("vllm:generation_tokens", "Generated tokens.",
                 static_cast<double>(engine->generation_tokens));
    page.gauge("pinfer:num_queued_tokens", "Prompt tokens of requests that wait.",
               static_cast<double>(engine->num_queued_tokens));
    page.counter("pinfer:steps", "Steps of the engine.", static_cast<double>(engine->num_steps));
    page.gauge("pinfer:stalled_seconds", "For how long requests wait while none runs.",
               static_cast<double>(engine->stalled_ms) / 1000);
  }
  const std::lock_guard lock(mutex_);
  page.head("vllm:request_success_total", "counter", "Requests that ended, by reason.");
  for (const auto& [reason, count] : success_) {
    page.value("vllm:request_success_total", static_cast<double>(count),
               ",finished_reason=\"" + escaped(reason) + "\"");
  }
  page.histogram("vllm:time_to_first_token_seconds", "From submission to the first token.",
                 time_to_first_token_);
  page.histogram("vllm:request_time_per_output_token_seconds", "Mean time between tokens.",
                 time_per_output_token_);
  page.histogram("vllm:e2e_request_latency_seconds", "From submission to the last token.",
                 e2e_latency_);
  page.histogram("vllm:request_queue_time_seconds", "Time before the first step.", queue_time_);
  page.histogram("vllm:request_prefill_time_seconds", "From then to the first token.",
                 prefill_time_);
  page.histogram("vllm:request_decode_time_seconds", "From then to the last token.", decode_time_);
  page.histogram("vllm:request_inference_time_seconds", "Prefill and decode together.",
                 inference_time_);
  page.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", prompt_tokens_);
  page.histogram("vllm:request_generation_tokens", "Output tokens of a request.",
                 generation_tokens_);
  page.histogram("vllm:request_params_n", "Choices that requests ask for.", params_n_);
  page.histogram("vllm:request_params_max_tokens", "max_tokens of requests.", params_max_tokens_);
  page.head("http_requests_total", "counter", "Requests by method, handler and status.");
  for (const auto& [key, count] : http_) {
    page.line("http_requests_total{method=\"" + key[0] + "\",handler=\"" + key[1] + "\",status=\"" +
              key[2] + "\"} " + std::to_string(count));
  }
  return page.take();
}

}  // namespace pinfer::server
