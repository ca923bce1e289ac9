#include "server/server_metrics.h"

#include <gtest/gtest.h>

namespace pinfer::server {
namespace {

TEST(Histogram, CountsUpToEachBound) {
  constexpr double kBounds[] = {0.1, 1, 10};
  Histogram histogram(kBounds);
  for (const double value : {0.05, 0.1, 0.5, 100.0}) histogram.add(value);
  std::string text;
  histogram.write("h", "a=\"b\"", &text);
  EXPECT_EQ(text,
            "h_bucket{a=\"b\",le=\"0.1\"} 2\n"
            "h_bucket{a=\"b\",le=\"1\"} 3\n"
            "h_bucket{a=\"b\",le=\"10\"} 3\n"
            "h_bucket{a=\"b\",le=\"+Inf\"} 4\n"
            "h_sum{a=\"b\"} 100.65\n"
            "h_count{a=\"b\"} 4\n");
}

TEST(ServerMetrics, PageOfAnEngine) {
  ServerMetrics metrics;
  metrics.add({.finish_reason = "stop",
               .num_prompt_tokens = 3,
               .num_output_tokens = 2,
               .queue_ms = 1,
               .prefill_ms = 20,
               .decode_ms = 10});
  metrics.add_http("POST", "/v1/completions", 200);
  pinfer_metrics engine{};
  engine.num_requests_running = 2;
  engine.num_usable_blocks = 10;
  engine.num_free_blocks = 4;
  const std::string text = metrics.text("na\"me\n", &engine);
  const std::string labels = "{model_name=\"na\\\"me\\n\",engine=\"0\"";
  const auto has = [&](const std::string& line) {
    return text.find("\n" + line + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has("vllm:num_requests_running" + labels + "} 2"));
  EXPECT_TRUE(has("vllm:kv_cache_usage_perc" + labels + "} 0.6"));
  EXPECT_TRUE(has("vllm:request_success_total" + labels + ",finished_reason=\"stop\"} 1"));
  EXPECT_TRUE(has("vllm:request_success_total" + labels + ",finished_reason=\"error\"} 0"));
  EXPECT_TRUE(has("vllm:time_to_first_token_seconds_sum" + labels + "} 0.021"));
  EXPECT_TRUE(has("vllm:request_time_per_output_token_seconds_sum" + labels + "} 0.01"));
  EXPECT_TRUE(
      has("http_requests_total{method=\"POST\",handler=\"/v1/completions\",status=\"200\"} 1"));
}

TEST(ServerMetrics, PageWhileLoading) {
  const std::string text = ServerMetrics().text("", nullptr);
  EXPECT_EQ(text.find("num_requests_running"), std::string::npos);
  EXPECT_NE(text.find("vllm:request_success_total"), std::string::npos);
}

}  // namespace
}  // namespace pinfer::server
