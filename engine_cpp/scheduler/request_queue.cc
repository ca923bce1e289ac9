#include "scheduler/request_queue.h"

namespace pinfer {

void RequestQueue::add_request(Request* request) { insert(request, back_++); }

void RequestQueue::prepend_request(Request* request) { insert(request, --front_); }

void RequestQueue::remove_request(const Request* request) {
  const auto found = keys_.find(request->request_id);
  if (found == keys_.end()) return;
  queue_.erase(found->second);
  keys_.erase(found);
}

std::vector<std::string> RequestQueue::request_ids() const {
  std::vector<std::string> ids;
  for (const auto& [key, request] : queue_) ids.push_back(request->request_id);
  return ids;
}

void RequestQueue::insert(Request* request, int64_t position) {
  const bool is_fcfs = policy_ == SchedulingPolicy::FCFS;
  const Key key = is_fcfs ? Key(position, 0, 0.0, request->request_id)
                          : Key(0, request->priority, request->arrival_time, request->request_id);
  queue_.emplace(key, request);
  keys_.emplace(request->request_id, key);
}

}  // namespace pinfer
