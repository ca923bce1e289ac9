#include "executor/input_batch.h"

#include <gtest/gtest.h>

namespace pinfer {
namespace {

ScheduledRequest scheduled(const char* id, ScheduledKind kind, int32_t num_computed_tokens,
                           std::vector<int32_t> token_ids, std::vector<int32_t> new_block_ids,
                           bool samples) {
  ScheduledRequest request;
  request.request_id = id;
  request.kind = kind;
  request.num_computed_tokens = num_computed_tokens;
  request.token_ids = std::move(token_ids);
  request.new_block_ids = {std::move(new_block_ids)};
  request.samples = samples;
  return request;
}

TEST(InputBatch, FlattensRequestsInScheduleOrder) {
  InputBatch batch(4);
  SchedulerOutput step;
  step.scheduled_requests = {
      scheduled("a", ScheduledKind::NEW, 0, {1, 2, 3, 4, 5}, {7, 3}, true),
      scheduled("b", ScheduledKind::NEW, 4, {9, 8}, {7, 5}, false),
  };
  batch.update(step);
  std::vector<int32_t> token_ids(static_cast<size_t>(batch.num_tokens()));
  InputBatch::copy_token_ids(step, token_ids.data());
  EXPECT_EQ(token_ids, (std::vector<int32_t>{1, 2, 3, 4, 5, 9, 8}));
  EXPECT_EQ(batch.positions, (AlignedVector<int32_t>{0, 1, 2, 3, 4, 4, 5}));
  EXPECT_EQ(batch.groups[0].slot_mapping, (AlignedVector<int64_t>{28, 29, 30, 31, 12, 20, 21}));
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{7, 3, 7, 5}));
  EXPECT_EQ(batch.seq_lens, (AlignedVector<int32_t>{5, 6}));
  EXPECT_EQ(batch.query_start_loc, (AlignedVector<int32_t>{0, 5, 7}));
  EXPECT_EQ(step.sampled_rows(), (std::vector<int32_t>{4}));
}

TEST(InputBatch, KeepsBlockTablesOfRunningRequests) {
  InputBatch batch(4);
  SchedulerOutput first, second;
  first.scheduled_requests = {scheduled("a", ScheduledKind::NEW, 0, {1, 2, 3, 4}, {2}, true)};
  second.scheduled_requests = {scheduled("a", ScheduledKind::RUNNING, 4, {5}, {6}, true)};
  batch.update(first);
  batch.update(second);
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{2, 6}));
  EXPECT_EQ(batch.groups[0].slot_mapping, (AlignedVector<int64_t>{24}));
}

TEST(InputBatch, ForgetsPreemptedAndFinishedRequests) {
  InputBatch batch(4);
  SchedulerOutput first, second;
  first.scheduled_requests = {scheduled("a", ScheduledKind::NEW, 0, {1}, {2}, true),
                              scheduled("b", ScheduledKind::NEW, 0, {1}, {3}, true)};
  batch.update(first);
  second.preempted_request_ids = {"a"};
  second.finished_request_ids = {"b"};
  // Both ids come back with tables of their own; nothing of the old ones is left in front.
  second.scheduled_requests = {scheduled("a", ScheduledKind::RESUMED, 0, {1, 2}, {5}, true),
                               scheduled("b", ScheduledKind::NEW, 0, {1}, {4}, true)};
  batch.update(second);
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{5, 4}));
}

TEST(InputBatch, FillsShortTablesWithTheNullBlock) {
  InputBatch batch(4);
  SchedulerOutput step;
  step.scheduled_requests = {scheduled("a", ScheduledKind::NEW, 0, {1, 2, 3, 4, 5}, {2, 3}, true),
                             scheduled("b", ScheduledKind::NEW, 0, {1}, {4}, true)};
  batch.update(step);
  EXPECT_EQ(batch.max_blocks(), 2);
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{2, 3, 4, 0}));
}

TEST(InputBatch, GroupsHaveTablesOfTheirOwn) {
  InputBatch batch(4, 2);
  SchedulerOutput first, second;
  first.scheduled_requests = {scheduled("a", ScheduledKind::NEW, 0, {1, 2, 3, 4, 5}, {7, 3}, true),
                              scheduled("b", ScheduledKind::NEW, 4, {9}, {7, 5}, true)};
  first.scheduled_requests[0].new_block_ids.push_back({4, 6});
  first.scheduled_requests[1].new_block_ids.push_back({0, 8});
  batch.update(first);
  EXPECT_EQ(batch.positions, (AlignedVector<int32_t>{0, 1, 2, 3, 4, 4}));
  EXPECT_EQ(batch.groups[0].slot_mapping, (AlignedVector<int64_t>{28, 29, 30, 31, 12, 20}));
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{7, 3, 7, 5}));
  EXPECT_EQ(batch.groups[1].slot_mapping, (AlignedVector<int64_t>{16, 17, 18, 19, 24, 32}));
  EXPECT_EQ(batch.groups[1].block_table, (AlignedVector<int32_t>{4, 6, 0, 8}));

  second.scheduled_requests = {scheduled("b", ScheduledKind::RUNNING, 8, {9}, {1}, true)};
  second.scheduled_requests[0].new_block_ids.push_back({2});
  batch.update(second);
  EXPECT_EQ(batch.groups[0].block_table, (AlignedVector<int32_t>{7, 5, 1}));
  EXPECT_EQ(batch.groups[1].block_table, (AlignedVector<int32_t>{0, 8, 2}));
  EXPECT_EQ(batch.groups[1].slot_mapping, (AlignedVector<int64_t>{8}));
}

TEST(InputBatch, AcceptsAStepWithoutRequests) {
  InputBatch batch(4);
  batch.update(SchedulerOutput());
  EXPECT_EQ(batch.num_tokens(), 0);
  EXPECT_EQ(batch.num_seqs(), 0);
  EXPECT_EQ(batch.query_start_loc, (AlignedVector<int32_t>{0}));
}

}  // namespace
}  // namespace pinfer
