// One request on its way to its answer.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "server/http/message.h"

namespace pinfer::server {

// What the access log says of a request beside its line and status.
struct ExchangeNotes {
  int num_prompt_tokens = 0;
  int num_output_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
  std::string finish_reason = {};
};

// An endpoint answers with respond(), or with start_events(), send_event()... and end_events().
// Answers after the client has gone are dropped. Thread-safe.
class Exchange {
 public:
  explicit Exchange(HttpRequest request) : request_(std::move(request)) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const { return request_; }

  // Headers that every kind of answer carries. REQUIRES: no answer has been begun.
  virtual void add_header(std::string name, std::string value) = 0;

  virtual void respond(HttpResponse response) = 0;
  // Server-sent events: the status line and headers go out at once.
  virtual void start_events() = 0;
  virtual void send_event(std::string data) = 0;
  virtual void end_events() = 0;

  // `cancelled` is called once if the client goes, or the server must stop, before the answer is
  // complete; at once if that has happened already. On any thread; it must not block.
  void on_cancel(std::function<void()> cancelled) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_cancelled_) {
        cancelled_ = std::move(cancelled);
        return;
      }
    }
    cancelled();
  }

  void cancel() {
    std::function<void()> cancelled;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_cancelled_, true)) return;
      cancelled = std::move(cancelled_);
    }
    if (cancelled) cancelled();
  }

  // Forgets the callback, which may keep its owner alive.
  void forget_cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = nullptr;
  }

  bool is_cancelled() const {
    const std::lock_guard lock(mutex_);
    return is_cancelled_;
  }

  void set_notes(ExchangeNotes notes) {
    const std::lock_guard lock(mutex_);
    notes_ = std::move(notes);
  }
  ExchangeNotes notes() const {
    const std::lock_guard lock(mutex_);
    return notes_;
  }

 private:
  const HttpRequest request_;
  mutable std::mutex mutex_;
  bool is_cancelled_ = false;
  std::function<void()> cancelled_;
  ExchangeNotes notes_;
};

}  // namespace pinfer::server
