#include "engine/request_stream.h"

#include <iterator>
#include <utility>

namespace pinfer {
namespace {

template <typename T>
void append(std::vector<T> more, std::vector<T>* all) {
  all->insert(all->end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

}  // namespace

void RequestStream::push(StreamOutput output) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (callback_) {
    callback_(output);
    return;
  }
  if (!has_pending_) {
    pending_ = std::move(output);
  } else {
    pending_.text += output.text;
    append(std::move(output.token_ids), &pending_.token_ids);
    append(std::move(output.logprobs), &pending_.logprobs);
    append(std::move(output.prompt_logprobs), &pending_.prompt_logprobs);
    pending_.embedding = std::move(output.embedding);
    pending_.finish_reason = std::move(output.finish_reason);
    pending_.error_message = std::move(output.error_message);
    pending_.num_cached_tokens = output.num_cached_tokens;
    pending_.times = output.times;
  }
  has_pending_ = true;
  changed_.notify_one();
}

RequestStream::ReadResult RequestStream::read(std::optional<std::chrono::milliseconds> timeout,
                                              StreamOutput* output) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto ready = [this] { return has_pending_ || ended_; };
  if (!timeout.has_value()) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, *timeout, ready)) {
    return ReadResult::TIMED_OUT;
  }
  if (!has_pending_) return ReadResult::ENDED;
  *output = std::exchange(pending_, StreamOutput());
  has_pending_ = false;
  ended_ = output->finished();
  return ReadResult::OUTPUT;
}

void RequestStream::detach_callback() {
  const std::lock_guard<std::mutex> lock(mutex_);
  callback_ = [](const StreamOutput&) {};
}

}  // namespace pinfer
