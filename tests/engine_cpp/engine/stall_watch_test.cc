#include "engine/stall_watch.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

using std::chrono::milliseconds;

TEST(StallWatch, CountsWhileRequestsWaitAndNothingRuns) {
  StallWatch watch;
  const auto start = StallWatch::Clock::now();
  EXPECT_EQ(watch.update(start, 0, 0), milliseconds(0));
  EXPECT_EQ(watch.update(start, 2, 5), milliseconds(0));
  EXPECT_EQ(watch.update(start + milliseconds(10), 0, 1), milliseconds(0));
  EXPECT_EQ(watch.update(start + milliseconds(260), 0, 3), milliseconds(250));
  EXPECT_EQ(watch.update(start + milliseconds(300), 1, 2), milliseconds(0));
  EXPECT_EQ(watch.update(start + milliseconds(400), 0, 2), milliseconds(0));
  EXPECT_EQ(watch.update(start + milliseconds(450), 0, 2), milliseconds(50));
}

}  // namespace
}  // namespace pinfer
