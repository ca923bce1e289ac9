#include "cli/stats.h"

#include <sys/resource.h>

#include <nlohmann/json.hpp>

namespace pinfer::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Constructed before main, with the first of the program's own code.
const Clock::time_point kProcessStart __attribute__((init_priority(101))) = Clock::now();

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double rounded(double value) {
  return static_cast<double>(static_cast<int64_t>(value * 1000)) / 1000;
}

}  // namespace

Clock::time_point process_start() { return kProcessStart; }

void Stats::submitted() {
  if (submitted_ == Clock::time_point()) submitted_ = Clock::now();
  awaits_first_ = true;
}

void Stats::received(const Output& piece) {
  const Clock::time_point now = Clock::now();
  const auto num_tokens = static_cast<int64_t>(piece.token_ids.size());
  output_tokens_ += num_tokens;
  if (awaits_first_ && num_tokens > 0) {
    if (has_first_) {
      pauses_ += now - last_;
    } else {
      first_ = now;
    }
    has_first_ = true;
    awaits_first_ = false;
    first_piece_tokens_ += num_tokens;
  }
  last_ = now;
  if (piece.finished()) prompt_tokens_ += piece.num_prompt_tokens;
}

std::string Stats::json(const Engine& engine) const {
  const auto info = nlohmann::ordered_json::parse(engine.info_json());
  const double decode_seconds = milliseconds(last_ - first_ - pauses_) / 1000;
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const nlohmann::ordered_json stats = {
      {"load_ms", rounded(info["load_ms"].get<double>())},
      {"prompt_tokens", prompt_tokens_},
      {"prefill_ms", has_first_ ? rounded(milliseconds(first_ - submitted_)) : 0},
      {"first_token_ms", has_first_ ? rounded(milliseconds(first_ - process_start())) : 0},
      {"output_tokens", output_tokens_},
      {"decode_tokens_per_s",
       decode_seconds > 0
           ? rounded(static_cast<double>(output_tokens_ - first_piece_tokens_) / decode_seconds)
           : 0},
      {"peak_rss_mb", rounded(static_cast<double>(usage.ru_maxrss) / 1024)},
      {"threads", info["threads"]},
      {"provider", info["provider"]},
      {"load_stages_ms", info["load_stages_ms"]},
  };
  return stats.dump();
}

}  // namespace pinfer::cli
