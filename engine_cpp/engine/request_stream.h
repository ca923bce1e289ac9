// What a request produces, on its way from the output thread to whoever asked for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/token_logprobs.h"

namespace pinfer {

// Where a request's time has gone so far, in milliseconds.
struct RequestTimes {
  double queue_ms = 0;    // from its submission until a step first computed it
  double prefill_ms = 0;  // from then until its first token
  double decode_ms = 0;   // from then until its latest token
};

// A piece of output, or several pieces put together.
struct StreamOutput {
  std::string text;                            // complete characters
  std::vector<int32_t> token_ids;              // every sampled token, an end id included
  std::vector<TokenLogprobs> logprobs;         // one for each token id, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the next prompt tokens, if asked for
  std::vector<float> embedding;                // with the last piece, if asked for
  std::string finish_reason;                   // "" while it goes on
  std::string error_message;                   // of finish_reason "error"
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  RequestTimes times;

  bool finished() const { return !finish_reason.empty(); }
};

// One writer (the output thread), one reader at a time. Pieces that nobody has read yet are put
// together, so that a slow reader costs memory for its text only.
class RequestStream {
 public:
  using Callback = std::function<void(const StreamOutput&)>;

  // With a callback, pieces go to it instead, on the writing thread.
  explicit RequestStream(Callback callback = nullptr) : callback_(std::move(callback)) {}

  void push(StreamOutput output);

  enum class ReadResult { OUTPUT, TIMED_OUT, ENDED };

  // Waits up to `timeout` (none: without limit) for output. ENDED once the last piece was read.
  ReadResult read(std::optional<std::chrono::milliseconds> timeout, StreamOutput* output);

  // Returns when the callback is not running; it is not called any more then.
  void detach_callback();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Callback callback_;
  StreamOutput pending_;
  bool has_pending_ = false;
  bool ended_ = false;  // the last piece has been read
};

}  // namespace pinfer
