// Turns the engine's token ids into text, finds stop strings, and passes both on to the streams.
#pragma once

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

#include "core/request_output.h"
#include "engine/request_stream.h"
#include "tokenizer/stop_string_matcher.h"
#include "tokenizer/streaming_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace pinfer {

// How a request's ids become text.
struct TextOptions {
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  int32_t min_tokens = 0;  // a stop string that these complete does not end the request
  bool skip_special_tokens = true;
};

// Has a thread of its own, so that detokenising never delays a step. add_request() and push() may
// be called from any thread; outputs of one request keep their order.
class OutputProcessor {
 public:
  // `tokenizer` is borrowed. `stop_request` is called (on the output thread) when a stop string
  // has ended a request that the engine still runs.
  OutputProcessor(const Tokenizer& tokenizer, std::vector<int32_t> eos_token_ids,
                  std::function<void(const std::string&)> stop_request);
  // Delivers what was pushed, then stops the thread.
  ~OutputProcessor();

  void add_request(const std::string& request_id, std::vector<int32_t> prompt_token_ids,
                   const TextOptions& options, bool ignore_eos, std::vector<int32_t> stop_token_ids,
                   std::shared_ptr<RequestStream> stream);

  // The step that begins now is the first one that computes these requests.
  void note_started(std::span<const std::string> request_ids,
                    std::chrono::steady_clock::time_point time);

  // error_message is passed on with outputs that end with "error".
  void push(std::vector<RequestOutput> outputs, const std::string& error_message = "");

  // Ends every request with "abort", for an engine that closes.
  void abort_all();

  // Requests that have been added and whose last output has not been delivered.
  size_t num_requests() const;
  // Returns when num_requests() is 0; false if the time ran out.
  bool wait_until_empty(std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;

  // An output on its way to the thread.
  struct Item {
    RequestOutput output;
    std::string error_message;
    Clock::time_point time;  // when the engine had it
  };

  struct State {
    State(const Tokenizer& tokenizer, std::vector<int32_t> prompt_token_ids, bool skip_special)
        : prompt(std::move(prompt_token_ids)), detokenizer(tokenizer, prompt, skip_special) {}

    std::vector<int32_t> prompt;
    StreamingDetokenizer detokenizer;
    std::unique_ptr<StopStringMatcher> stop;  // null without stop strings
    int32_t num_tokens_before_stop = 0;       // of min_tokens, still to come
    bool ignore_eos = false;
    std::vector<int32_t> stop_token_ids;
    std::shared_ptr<RequestStream> stream;
    const Clock::time_point arrival = Clock::now();
    std::optional<Clock::time_point> started;  // under the lock
    std::optional<Clock::time_point> first_token;
  };

  void run();
  void deliver(Item item);
  RequestTimes times_of(State& state, const Item& item) const;
  // The text that one sampled token adds; sets finish_reason when a stop string is complete.
  std::string text_of(State& state, const RequestOutput& output, size_t index, bool* stopped) const;
  bool hides_text(const State& state, const RequestOutput& output, size_t index) const;

  const Tokenizer& tokenizer_;
  const std::vector<int32_t> eos_token_ids_;
  const std::function<void(const std::string&)> stop_request_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, emptied_;
  std::unordered_map<std::string, std::unique_ptr<State>> states_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pinfer
