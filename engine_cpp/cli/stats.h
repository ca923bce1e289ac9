// Times of one generation, as `--stats` prints them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "pinfer/pinfer.hpp"

namespace pinfer::cli {

// When this process began to run its own code (before main).
std::chrono::steady_clock::time_point process_start();

// Follows one generation, several that count as one (batch), or several in turn (chat: what passes
// between the end of an answer and the first token of the next one is no decoding).
class Stats {
 public:
  // A generation, or the first of several at once, has been submitted.
  void submitted();
  void received(const Output& piece);

  // {"load_ms", "prompt_tokens", "prefill_ms",
  // "first_token_ms", "output_tokens",
  //  "decode_tokens_per_s", "peak_rss_mb", "threads", "provider", "load_stages_ms": {"manifest",
  //  ...}} on one line.
  std::string json(const Engine& engine) const;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point submitted_, first_, last_;
  Clock::duration pauses_{};
  bool has_first_ = false, awaits_first_ = false;
  int64_t prompt_tokens_ = 0, output_tokens_ = 0, first_piece_tokens_ = 0;
};

}  // namespace pinfer::cli
