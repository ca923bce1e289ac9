#include "scheduler/request_queue.h"

#include <gtest/gtest.h>

#include <memory>

namespace pinfer {
namespace {

using Ids = std::vector<std::string>;

struct Waiting {
  explicit Waiting(SchedulingPolicy policy) : queue(policy) {}

  Request* make(const std::string& id, int32_t priority = 0, double arrival_time = 0.0) {
    requests.push_back(std::make_unique<Request>(
        id, std::vector<int32_t>{1}, SamplingParams(),
        RequestOptions{.priority = priority, .arrival_time = arrival_time}));
    return requests.back().get();
  }

  std::vector<std::unique_ptr<Request>> requests;
  RequestQueue queue;
};

TEST(RequestQueueTest, FcfsIsADoubleEndedQueue) {
  Waiting waiting(SchedulingPolicy::FCFS);
  EXPECT_TRUE(waiting.queue.empty());
  waiting.queue.add_request(waiting.make("b", 9));
  waiting.queue.add_request(waiting.make("a", 0));
  waiting.queue.prepend_request(waiting.make("p1"));
  waiting.queue.prepend_request(waiting.make("p0"));
  EXPECT_EQ(waiting.queue.request_ids(), (Ids{"p0", "p1", "b", "a"}));
  waiting.queue.remove_request(waiting.requests[0].get());
  waiting.queue.pop_request();
  EXPECT_EQ(waiting.queue.request_ids(), (Ids{"p1", "a"}));
  waiting.queue.add_request(waiting.make("c"));
  EXPECT_EQ(waiting.queue.request_ids(), (Ids{"p1", "a", "c"}));
  EXPECT_EQ(waiting.queue.size(), 3U);
}

TEST(RequestQueueTest, PriorityOrdersByPriorityArrivalAndId) {
  Waiting waiting(SchedulingPolicy::PRIORITY);
  waiting.queue.add_request(waiting.make("r2", 1, 5.0));
  waiting.queue.prepend_request(waiting.make("r10", 1, 5.0));
  waiting.queue.add_request(waiting.make("late", -1, 9.0));
  waiting.queue.add_request(waiting.make("early", 1, 4.0));
  EXPECT_EQ(waiting.queue.request_ids(), (Ids{"late", "early", "r10", "r2"}));
  EXPECT_EQ(waiting.queue.peek_request()->request_id, "late");
}

TEST(RequestQueueTest, RemovingWhatDoesNotWaitDoesNothing) {
  Waiting waiting(SchedulingPolicy::FCFS);
  waiting.queue.add_request(waiting.make("a"));
  waiting.queue.remove_request(waiting.make("b"));
  EXPECT_EQ(waiting.queue.request_ids(), (Ids{"a"}));
}

}  // namespace
}  // namespace pinfer
