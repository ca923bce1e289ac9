#include "cli/request_lines.h"

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/flags.h"

namespace pinfer::cli {
namespace {

// Lines that wait for their answer. Bounded: reading pauses while many are unanswered.
class PendingQueue {
 public:
  void push(WaitForAnswer pending) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < kMaxPending; });
    queue_.push_back(std::move(pending));
    changed_.notify_all();
  }

  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  // None when closed and empty.
  std::optional<WaitForAnswer> pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return std::nullopt;
    WaitForAnswer pending = std::move(queue_.front());
    queue_.pop_front();
    changed_.notify_all();
    return pending;
  }

 private:
  static constexpr size_t kMaxPending = 4096;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WaitForAnswer> queue_;
  bool closed_ = false;
};

Json answer_of(const WaitForAnswer& wait) {
  try {
    return wait();
  } catch (const std::exception& error) {
    return error_answer(error.what());
  }
}

}  // namespace

void answer_request_lines(const std::function<WaitForAnswer(const Json&)>& begin) {
  PendingQueue queue;
  std::thread reader([&] {
    std::string line;
    while (std::getline(std::cin, line)) {
      try {
        queue.push(begin(parse_line(line)));
      } catch (const std::exception& error) {
        queue.push([message = std::string(error.what())] { return error_answer(message); });
      }
    }
    queue.close();
  });
  try {
    while (const std::optional<WaitForAnswer> pending = queue.pop()) {
      print_line(answer_of(*pending));
    }
  } catch (const Error& error) {  // nobody takes the answers, and the reader may wait for ever
    print_error(error.what());
    std::_Exit(kExitFailed);
  }
  reader.join();
}

}  // namespace pinfer::cli
