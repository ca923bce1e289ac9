// What /metrics shows: vLLM's names and meanings, in Prometheus' text format.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"

namespace pinfer::server {

// Counts of values up to given bounds. Not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds_.size() + 1) {}
  void add(double value);
  // "name_bucket{...} n" lines, then sum and count.
  void write(const std::string& name, const std::string& labels, std::string* out) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// One choice that has ended.
struct FinishedChoice {
  std::string finish_reason;
  int num_prompt_tokens = 0, num_output_tokens = 0;
  int num_choices = 1;  // n of its request
  int max_tokens = 0;   // 0: the rest of the context
  bool is_embedding = false;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
};

// Thread-safe.
class ServerMetrics {
 public:
  ServerMetrics();

  void add(const FinishedChoice& choice);
  void add_http(const std::string& method, const std::string& path, int status);

  // The whole page. `engine`: null while it is loading.
  std::string text(const std::string& model_name, const pinfer_metrics* engine) const;

 private:
  mutable std::mutex mutex_;
  Histogram time_to_first_token_, time_per_output_token_, e2e_latency_;
  Histogram queue_time_, prefill_time_, decode_time_, inference_time_;
  Histogram prompt_tokens_, generation_tokens_, params_n_, params_max_tokens_;
  std::map<std::string, int64_t> success_;              // by finish reason
  std::map<std::array<std::string, 3>, int64_t> http_;  // by method, path and status
};

}  // namespace pinfer::server
