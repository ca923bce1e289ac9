// Notices when requests wait and nothing runs: what must not happen, and what probes have to show.
#pragma once

#include <chrono>

namespace pinfer {

// Fed by the engine thread after every step; a value otherwise.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // How long requests have been waiting with none running; 0 while all is well.
  std::chrono::milliseconds update(Clock::time_point now, int num_running, int num_waiting) {
    if (num_running > 0 || num_waiting == 0) {
      since_ = Clock::time_point();
      return std::chrono::milliseconds(0);
    }
    if (since_ == Clock::time_point()) since_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - since_);
  }

 private:
  Clock::time_point since_;
};

}  // namespace pinfer
