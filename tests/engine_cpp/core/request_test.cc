#include "core/request.h"

#include <gtest/gtest.h>

#include <set>

namespace pinfer {
namespace {

TEST(RequestTest, OutputFollowsThePrompt) {
  Request request("r0", {5, 6, 7}, {});
  EXPECT_EQ(request.num_prompt_tokens, 3);
  EXPECT_EQ(request.num_output_tokens(), 0);
  request.append_output_token_id(8);
  EXPECT_EQ(request.num_tokens(), 4);
  EXPECT_EQ(request.num_output_tokens(), 1);
  EXPECT_EQ(request.output_token_ids()[0], 8);
  EXPECT_EQ(request.prompt_token_ids().size(), 3U);
}

TEST(RequestTest, EndIds) {
  SamplingParams params;
  params.stop_token_ids = {9};
  const Request request("r0", {5}, params, {.eos_token_ids = {2, 3, 2, 4}});
  EXPECT_EQ(request.eos_token_id, 2);
  EXPECT_EQ(request.extra_eos_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_TRUE(request.is_stop_token_id(9));
  EXPECT_TRUE(request.is_stop_token_id(4));
  EXPECT_FALSE(request.is_stop_token_id(2));

  params.ignore_eos = true;
  const Request ignoring("r1", {5}, params, {.eos_token_ids = {2, 3}});
  EXPECT_TRUE(ignoring.is_stop_token_id(9));
  EXPECT_FALSE(ignoring.is_stop_token_id(3));

  const Request without("r2", {5}, {});
  EXPECT_EQ(without.eos_token_id, std::nullopt);
}

TEST(RequestTest, SeedIsTheGivenOneOrRandom) {
  SamplingParams params;
  params.seed = -1;
  EXPECT_EQ(Request("r0", {5}, params).seed, ~uint64_t{0});
  std::set<uint64_t> seeds;
  for (int i = 0; i < 20; ++i) seeds.insert(Request("r0", {5}, {}).seed);
  EXPECT_EQ(seeds.size(), 20U);
}

TEST(RequestTest, FinishReasons) {
  EXPECT_EQ(finish_reason(RequestStatus::FINISHED_STOPPED), "stop");
  EXPECT_EQ(finish_reason(RequestStatus::FINISHED_LENGTH), "length");
  EXPECT_EQ(finish_reason(RequestStatus::FINISHED_ABORTED), "abort");
  EXPECT_EQ(finish_reason(RequestStatus::FINISHED_ERROR), "error");
  for (const auto status :
       {RequestStatus::WAITING, RequestStatus::RUNNING, RequestStatus::PREEMPTED}) {
    EXPECT_EQ(finish_reason(status), "");
    EXPECT_FALSE(is_finished(status));
  }
}

}  // namespace
}  // namespace pinfer
