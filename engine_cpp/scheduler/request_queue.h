// The requests that wait, in the order in which the policy serves them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/engine_config.h"
#include "core/request.h"

namespace pinfer {

// FCFS: a double-ended queue. PRIORITY: ordered by priority, arrival time, then id as a string.
// Every operation is O(log n). Not thread-safe; owns nothing.
class RequestQueue {
 public:
  explicit RequestQueue(SchedulingPolicy policy) : policy_(policy) {}

  // A request that arrives: at the back under FCFS.
  void add_request(Request* request);
  // A preempted request: at the front under FCFS.
  void prepend_request(Request* request);
  // No effect if it does not wait here.
  void remove_request(const Request* request);

  // REQUIRES: not empty.
  Request* peek_request() const { return queue_.begin()->second; }
  void pop_request() { remove_request(peek_request()); }

  bool empty() const { return queue_.empty(); }
  size_t size() const { return queue_.size(); }
  std::vector<std::string> request_ids() const;  // in order

 private:
  // Position under FCFS (0 under PRIORITY), then what orders PRIORITY.
  using Key = std::tuple<int64_t, int32_t, double, std::string_view>;

  void insert(Request* request, int64_t position);

  const SchedulingPolicy policy_;
  std::map<Key, Request*> queue_;
  std::map<std::string_view, Key> keys_;  // by request id
  int64_t front_ = 0;                     // the smallest position given
  int64_t back_ = 0;                      // one more than the greatest
};

}  // namespace pinfer
