// What the traces and scenarios do not reach: the interface towards engine and executor.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace pinfer {
namespace {

using Ids = std::vector<std::string>;

EngineConfig make_config(int32_t num_blocks = 20) {
  EngineConfig config;
  config.block_size = 4;
  config.num_blocks = num_blocks;
  config.max_model_len = 64;
  return config;
}

std::unique_ptr<Request> make_request(const std::string& id, int32_t num_tokens = 6,
                                      int32_t max_tokens = 8) {
  std::vector<int32_t> prompt(static_cast<size_t>(num_tokens));
  std::iota(prompt.begin(), prompt.end(), 100);
  SamplingParams params;
  params.max_tokens = max_tokens;
  return std::make_unique<Request>(id, std::move(prompt), params,
                                   RequestOptions{.eos_token_ids = {2}});
}

ModelRunnerOutput sample(const SchedulerOutput& output, int32_t token_id = 7) {
  ModelRunnerOutput sampled;
  for (const ScheduledRequest& request : output.scheduled_requests) {
    if (request.samples) sampled.sampled_tokens.push_back({request.request_id, token_id, false});
  }
  return sampled;
}

Ids ids_of(const std::vector<RequestOutput>& outputs) {
  Ids ids;
  for (const RequestOutput& output : outputs) ids.push_back(output.request_id);
  return ids;
}

TEST(SchedulerTest, AStepTellsTheExecutorEverything) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("a")).ok());
  EXPECT_TRUE(scheduler.has_unfinished_requests());
  const SchedulerOutput& first = scheduler.schedule();
  ASSERT_EQ(first.scheduled_requests.size(), 1U);
  const ScheduledRequest& prefill = first.scheduled_requests[0];
  EXPECT_EQ(prefill.request_id, "a");
  EXPECT_EQ(prefill.kind, ScheduledKind::NEW);
  EXPECT_EQ(prefill.num_computed_tokens, 0);
  EXPECT_EQ(prefill.token_ids, (std::vector<int32_t>{100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(prefill.new_block_ids, (std::vector<std::vector<int32_t>>{{1, 2}}));
  EXPECT_TRUE(prefill.samples);
  EXPECT_EQ(first.total_num_scheduled_tokens, 6);

  const auto& outputs = scheduler.update_from_output(first, sample(first));
  ASSERT_EQ(outputs.size(), 1U);
  EXPECT_EQ(outputs[0].new_token_ids, (std::vector<int32_t>{7}));
  EXPECT_FALSE(outputs[0].finished());

  const SchedulerOutput& second = scheduler.schedule();
  EXPECT_EQ(second.scheduled_requests[0].kind, ScheduledKind::RUNNING);
  EXPECT_EQ(second.scheduled_requests[0].num_computed_tokens, 6);
  EXPECT_EQ(second.scheduled_requests[0].token_ids, (std::vector<int32_t>{7}));
  EXPECT_TRUE(second.scheduled_requests[0].new_block_ids[0].empty());
}

TEST(SchedulerTest, ChunksSampleOnlyAtTheEnd) {
  EngineConfig config = make_config();
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 4;
  Scheduler scheduler(config);
  ASSERT_TRUE(scheduler.add_request(make_request("a", 6)).ok());
  const SchedulerOutput& first = scheduler.schedule();
  EXPECT_FALSE(first.scheduled_requests[0].samples);
  EXPECT_TRUE(scheduler.update_from_output(first, {}).empty());
  const SchedulerOutput& second = scheduler.schedule();
  EXPECT_TRUE(second.scheduled_requests[0].samples);
  EXPECT_EQ(second.scheduled_requests[0].num_scheduled_tokens(), 2);
  EXPECT_EQ(scheduler.update_from_output(second, sample(second)).size(), 1U);
}

TEST(SchedulerTest, RefusesAnIdInUse) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("a")).ok());
  const Status status = scheduler.add_request(make_request("a"));
  EXPECT_EQ(status.code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.message(), "request_id a is in use");
  EXPECT_EQ(scheduler.finish_requests(Ids{"a"}, RequestStatus::FINISHED_ABORTED).size(), 1U);
  EXPECT_TRUE(scheduler.add_request(make_request("a")).ok()) << "free again";
}

TEST(SchedulerTest, RefusesWhatCannotBeOrdered) {
  Scheduler scheduler(make_config());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(
      scheduler
          .add_request(std::make_unique<Request>("a", std::vector<int32_t>{1}, SamplingParams(),
                                                 RequestOptions{.arrival_time = nan}))
          .ok());
}

TEST(SchedulerTest, RefusalsHaveTheirCodes) {
  Scheduler scheduler(make_config(4));
  EXPECT_EQ(scheduler.add_request(make_request("a", 10, 8)).code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(scheduler.add_request(make_request("b", 64, 1)).code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(
      scheduler.add_request(make_request("c", 10, std::numeric_limits<int32_t>::max())).code(),
      StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_FALSE(scheduler.has_unfinished_requests());
  EXPECT_TRUE(scheduler.schedule().scheduled_requests.empty());
}

TEST(SchedulerTest, EndedRequestsAreReportedToTheExecutorOnce) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("a", 6, 1)).ok());
  ASSERT_TRUE(scheduler.add_request(make_request("b")).ok());
  const SchedulerOutput& first = scheduler.schedule();
  const auto& outputs = scheduler.update_from_output(first, sample(first));
  EXPECT_EQ(outputs[0].finish_reason, "length");
  EXPECT_TRUE(scheduler.has_finished_requests());
  EXPECT_EQ(scheduler.find_request("a"), nullptr);
  ASSERT_NE(scheduler.find_request("b"), nullptr);
  EXPECT_EQ(scheduler.find_request("b")->output_token_ids()[0], 7);
  scheduler.finish_requests(Ids{"b"}, RequestStatus::FINISHED_ABORTED);
  EXPECT_EQ(scheduler.schedule().finished_request_ids, (Ids{"a", "b"}));
  EXPECT_TRUE(scheduler.schedule().finished_request_ids.empty());
  EXPECT_FALSE(scheduler.has_finished_requests());
  EXPECT_FALSE(scheduler.has_unfinished_requests());
}

TEST(SchedulerTest, FinishFromOutside) {
  Scheduler scheduler(make_config());
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(scheduler.add_request(make_request(id)).ok());
  const SchedulerOutput& first = scheduler.schedule();
  scheduler.update_from_output(first, sample(first));
  const auto outputs =
      scheduler.finish_requests(Ids{"c", "unknown", "a", "c"}, RequestStatus::FINISHED_STOPPED);
  EXPECT_EQ(ids_of(outputs), (Ids{"c", "a"}));
  EXPECT_EQ(outputs[0].finish_reason, "stop");
  EXPECT_EQ(outputs[0].stop_reason, std::nullopt);
  EXPECT_TRUE(outputs[0].new_token_ids.empty());
  EXPECT_EQ(scheduler.running_request_ids(), (Ids{"b"}));
}

TEST(SchedulerTest, AFailedStepLeavesNoKeys) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("a", 9)).ok());
  scheduler.schedule();
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 2);
  scheduler.finish_requests(Ids{"a"}, RequestStatus::FINISHED_ERROR);
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 0);
  EXPECT_EQ(scheduler.stats().num_free_blocks, 19);
}

TEST(SchedulerTest, AMissingTokenEndsItsRequestAlone) {
  Scheduler scheduler(make_config());
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(scheduler.add_request(make_request(id)).ok());
  const SchedulerOutput& output = scheduler.schedule();
  ModelRunnerOutput sampled = sample(output);
  sampled.sampled_tokens.erase(sampled.sampled_tokens.begin() + 1);
  const auto& outputs = scheduler.update_from_output(output, sampled);
  ASSERT_EQ(ids_of(outputs), (Ids{"a", "b", "c"}));
  EXPECT_EQ(outputs[0].finish_reason, "");
  EXPECT_EQ(outputs[1].finish_reason, "error");
  EXPECT_TRUE(outputs[1].new_token_ids.empty());
  EXPECT_EQ(outputs[2].new_token_ids, (std::vector<int32_t>{7}));
}

TEST(SchedulerTest, AnIdThatComesBackInTheMiddleOfAStepIsAnother) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("a")).ok());
  ASSERT_TRUE(scheduler.add_request(make_request("b")).ok());
  const SchedulerOutput& output = scheduler.schedule();
  const ModelRunnerOutput sampled = sample(output);
  scheduler.finish_requests(Ids{"a"}, RequestStatus::FINISHED_ABORTED);
  ASSERT_TRUE(scheduler.add_request(make_request("a")).ok());
  EXPECT_EQ(ids_of(scheduler.update_from_output(output, sampled)), (Ids{"b"}));
  EXPECT_EQ(scheduler.find_request("a")->num_output_tokens(), 0);
  EXPECT_EQ(scheduler.find_request("a")->status, RequestStatus::WAITING);
}

TEST(SchedulerTest, CachedTokensAreThoseOfTheFirstAdmission) {
  EngineConfig config = make_config(5);
  config.max_num_seqs = 2;
  Scheduler scheduler(config);
  ASSERT_TRUE(scheduler.add_request(make_request("a", 5, 8)).ok());
  ASSERT_TRUE(scheduler.add_request(make_request("b", 5, 8)).ok());
  int32_t num_steps = 0;
  bool was_resumed = false;
  while (scheduler.has_unfinished_requests() && ++num_steps < 50) {
    const SchedulerOutput& output = scheduler.schedule();
    for (const ScheduledRequest& request : output.scheduled_requests) {
      was_resumed |= request.kind == ScheduledKind::RESUMED && request.num_computed_tokens > 4;
    }
    for (const RequestOutput& out : scheduler.update_from_output(output, sample(output))) {
      EXPECT_EQ(out.num_cached_tokens, out.request_id == "a" ? 0 : 4);
    }
  }
  EXPECT_TRUE(was_resumed) << "b is preempted, and finds more of itself when it comes back";
  EXPECT_GT(scheduler.stats().num_preemptions, 0);
  EXPECT_EQ(scheduler.stats().num_free_blocks, scheduler.stats().num_usable_blocks);
}

TEST(SchedulerTest, Stats) {
  EngineConfig config = make_config();
  config.max_num_seqs = 1;
  Scheduler scheduler(config);
  ASSERT_TRUE(scheduler.add_request(make_request("a", 9)).ok());
  ASSERT_TRUE(scheduler.add_request(make_request("b", 9)).ok());
  scheduler.schedule();
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.num_running_requests, 1);
  EXPECT_EQ(stats.num_waiting_requests, 1);
  EXPECT_EQ(stats.num_usable_blocks, 19);
  EXPECT_EQ(stats.num_free_blocks, 16);
  EXPECT_EQ(stats.num_cached_blocks, 2);
  EXPECT_EQ(stats.prefix_cache_queried_tokens, 9);
  EXPECT_EQ(stats.prefix_cache_hit_tokens, 0);
  EXPECT_FALSE(scheduler.reset_prefix_cache());
}

TEST(SchedulerTest, SampledTokensTakeThePlaceOfPlaceholders) {
  Scheduler scheduler(make_config());
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(scheduler.add_request(make_request(id)).ok());
  const SchedulerOutput& first = scheduler.schedule();
  SchedulerOutput& second = scheduler.schedule();
  ASSERT_EQ(second.scheduled_requests.size(), 3U);
  EXPECT_EQ(second.scheduled_requests[0].token_ids, (std::vector<int32_t>{kPlaceholderTokenId}));
  // b ends; what is computed for it must be a token.
  const std::vector<SampledToken> tokens = {{"a", 7, false}, {"b", -1, true}, {"c", 9, false}};
  second.put_sampled_tokens(tokens);
  EXPECT_EQ(second.scheduled_requests[0].token_ids, (std::vector<int32_t>{7}));
  EXPECT_EQ(second.scheduled_requests[1].token_ids, (std::vector<int32_t>{0}));
  EXPECT_EQ(second.scheduled_requests[2].token_ids, (std::vector<int32_t>{9}));
  const auto& outputs = scheduler.update_from_output(first, {tokens, {}, {}});
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs[0].finish_reason, "");
  EXPECT_EQ(outputs[1].finish_reason, "error");
  EXPECT_EQ(outputs[2].new_token_ids, (std::vector<int32_t>{9}));
}

TEST(SchedulerTest, AFailedStepEndsItsRequestsAndLeavesNothingInTheCache) {
  Scheduler scheduler(make_config());
  ASSERT_TRUE(scheduler.add_request(make_request("fails", 9)).ok());
  ASSERT_TRUE(scheduler.add_request(make_request("gone", 8)).ok());
  const SchedulerOutput& first = scheduler.schedule();
  scheduler.finish_requests(Ids{"gone"}, RequestStatus::FINISHED_ABORTED);
  ASSERT_TRUE(scheduler.add_request(make_request("goes on", 9)).ok());
  // Is not to run: it goes on from what the first was to write.
  const SchedulerOutput& second = scheduler.schedule();
  ASSERT_EQ(second.scheduled_requests.size(), 2U);
  EXPECT_EQ(second.scheduled_requests[1].num_computed_tokens, 8);
  EXPECT_EQ(ids_of(scheduler.fail_step(first)), Ids{"fails"});
  EXPECT_EQ(scheduler.stats().num_cached_blocks, 0);
  EXPECT_EQ(scheduler.stats().num_free_blocks, scheduler.stats().num_usable_blocks);
  const SchedulerOutput& third = scheduler.schedule();
  EXPECT_EQ(third.preempted_request_ids, Ids{"goes on"});
  EXPECT_EQ(third.finished_request_ids, (Ids{"fails"}));
  const SchedulerOutput& fourth = scheduler.schedule();
  ASSERT_EQ(fourth.scheduled_requests.size(), 1U);
  EXPECT_EQ(fourth.scheduled_requests[0].kind, ScheduledKind::RESUMED);
  EXPECT_EQ(fourth.scheduled_requests[0].num_scheduled_tokens(), 9);
  EXPECT_TRUE(fourth.scheduled_requests[0].samples);
}

}  // namespace
}  // namespace pinfer
