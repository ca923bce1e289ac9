// Cost of the scheduler alone: one step (schedule and update) of N running decode requests, and the
// prefix lookup of a long prompt. Targets: 100 us for 256 requests, linear to 4,096; 1 ms for a
// lookup of 32k tokens whose hashes are known.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace pinfer {
namespace {

constexpr int32_t kPromptLength = 100;
constexpr int32_t kMaxModelLen = 1 << 30;  // never reached

EngineConfig make_config(int32_t num_requests, int32_t num_blocks) {
  EngineConfig config;
  config.max_model_len = kMaxModelLen;
  config.max_num_seqs = num_requests;
  config.max_num_batched_tokens = std::max(num_requests, 32768);
  config.num_blocks = num_blocks;
  return config;
}

std::unique_ptr<Request> make_request(int32_t index, int32_t prompt_length, int32_t max_tokens) {
  std::vector<int32_t> prompt(static_cast<size_t>(prompt_length));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = index + static_cast<int32_t>(i);
  SamplingParams params;
  params.max_tokens = max_tokens;
  return std::make_unique<Request>("request-" + std::to_string(index), std::move(prompt), params,
                                   RequestOptions{.eos_token_ids = {0}});
}

ModelRunnerOutput sample_all(const SchedulerOutput& output) {
  ModelRunnerOutput sampled;
  for (const ScheduledRequest& request : output.scheduled_requests) {
    if (request.samples) sampled.sampled_tokens.push_back({request.request_id, 7, false});
  }
  return sampled;
}

// A scheduler whose num_requests requests have all been prefilled.
std::unique_ptr<Scheduler> make_decoding_scheduler(int32_t num_requests, int32_t max_tokens,
                                                   benchmark::State& state) {
  const int32_t blocks_each = (kPromptLength + max_tokens) / 16 + 1;
  auto scheduler =
      std::make_unique<Scheduler>(make_config(num_requests, 1 + num_requests * blocks_each));
  for (int32_t i = 0; i < num_requests; ++i) {
    if (!scheduler->add_request(make_request(i, kPromptLength, max_tokens)).ok()) {
      state.SkipWithError("a request was refused");
    }
  }
  size_t num_prefilled = 0;
  while (num_prefilled < static_cast<size_t>(num_requests)) {
    const SchedulerOutput& output = scheduler->schedule();
    const ModelRunnerOutput sampled = sample_all(output);
    num_prefilled = sampled.sampled_tokens.size();
    scheduler->update_from_output(output, sampled);
  }
  return scheduler;
}

void BM_DecodeStep(benchmark::State& state) {
  const auto num_requests = static_cast<int32_t>(state.range(0));
  constexpr int32_t kMaxTokens = 1024;
  std::unique_ptr<Scheduler> scheduler;
  ModelRunnerOutput sampled;
  int32_t num_left = 0;
  for (auto _ : state) {
    if (num_left == 0) {
      state.PauseTiming();
      scheduler = make_decoding_scheduler(num_requests, kMaxTokens, state);
      const SchedulerOutput& first = scheduler->schedule();
      sampled = sample_all(first);  // the order stays: one output serves every step
      scheduler->update_from_output(first, sampled);
      num_left = kMaxTokens - 100;
      state.ResumeTiming();
    }
    const SchedulerOutput& output = scheduler->schedule();
    const auto& outputs = scheduler->update_from_output(output, sampled);
    if (outputs.size() != static_cast<size_t>(num_requests) || outputs[0].new_token_ids[0] != 7) {
      state.SkipWithError("a request got no token");
      return;
    }
    --num_left;
  }
  state.SetItemsProcessed(state.iterations() * num_requests);
}
BENCHMARK(BM_DecodeStep)
    ->Arg(16)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(4096)
    ->Unit(benchmark::kMicrosecond);

void BM_PrefixLookup(benchmark::State& state) {
  const auto num_tokens = static_cast<int32_t>(state.range(0));
  EngineConfig config = make_config(2, 4 * num_tokens / 16);
  KVCacheManager manager(config);
  const auto first = make_request(0, num_tokens, 1);
  manager.allocate_for_admission(*first, manager.get_computed_blocks(*first), num_tokens, 0);
  const auto second = make_request(0, num_tokens, 1);
  for (auto _ : state) {
    const ComputedBlocks computed = manager.get_computed_blocks(*second);
    if (computed.num_tokens != (num_tokens - 1) / 16 * 16) {
      state.SkipWithError("the prefix was not found");
      return;
    }
  }
}
BENCHMARK(BM_PrefixLookup)->Arg(1024)->Arg(32768)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pinfer

BENCHMARK_MAIN();
