#include "executor/cuda_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pinfer {
namespace {

TEST(CudaGraphsTest, FewSizesServeAllSteps) {
  int64_t num_sizes = 0, last = 0;
  for (int64_t seqs = 1; seqs <= 256; ++seqs) {
    const int64_t size = graph_batch_size(seqs);
    ASSERT_GE(size, seqs);
    ASSERT_LE(size, std::max<int64_t>(2 * seqs, seqs + 15)) << seqs;
    ASSERT_EQ(graph_batch_size(size), size);
    num_sizes += size != last;
    last = size;
  }
  EXPECT_EQ(num_sizes, 20);
  EXPECT_EQ(graph_batch_size(1), 1);
  EXPECT_EQ(graph_batch_size(9), 16);
  EXPECT_EQ(graph_batch_size(17), 32);
  EXPECT_EQ(graph_batch_size(257), 0);
}

TEST(CudaGraphsTest, TablesAreRoundedUpWithinTheModelsLength) {
  EXPECT_EQ(graph_max_blocks(1, 1000), 16);
  EXPECT_EQ(graph_max_blocks(17, 1000), 32);
  EXPECT_EQ(graph_max_blocks(600, 1000), 1000);
  EXPECT_EQ(graph_max_blocks(3, 8), 8);
  EXPECT_EQ(graph_max_blocks(8, 8), 8);
}

}  // namespace
}  // namespace pinfer
