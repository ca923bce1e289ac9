// The engine's threads over a fake model: many callers at once, aborts, closing in the middle.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <random>

#include "../text_bundle.h"
#include "fake_executor.h"

namespace pinfer {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kFirstId = 65;

// A bundle of a tokenizer alone.
std::string make_text_bundle() {
  const std::string path = testing::TempDir() + "/engine_test_" + std::to_string(::getpid());
  write_text_bundle(path);
  return path;
}

size_t num_entries(const char* directory) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

// The parameter: whether scheduling is asynchronous.
class EngineTest : public testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() { bundle_ = new std::string(make_text_bundle()); }
  static void TearDownTestSuite() {
    fs::remove_all(*bundle_);
    delete bundle_;
  }

  std::unique_ptr<Engine> open(int32_t max_queue = 0) {
    EngineOptions options;
    options.config.max_model_len = 128;
    options.config.num_blocks = 40;
    options.config.max_num_seqs = 8;
    options.config.max_num_batched_tokens = 64;
    options.config.async_scheduling = GetParam();
    options.max_queue = max_queue;
    auto executor = std::make_unique<FakeExecutor>(200);
    executor_ = executor.get();
    options.executor = std::move(executor);
    auto engine = Engine::open(*bundle_, std::move(options));
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return engine.take();
  }

  static GenerateRequest request(int32_t prompt_size, int32_t max_tokens) {
    GenerateRequest made;
    for (int32_t i = 0; i < prompt_size; ++i) made.prompt_token_ids.push_back(kFirstId + i % 20);
    made.sampling_params.temperature = 0;
    made.sampling_params.max_tokens = max_tokens;
    made.sampling_params.ignore_eos = true;
    return made;
  }

  // Everything until the end; "" as the reason if nothing came for half a minute.
  static StreamOutput read_all(const RequestHandle& handle) {
    StreamOutput all, piece;
    while (handle.stream->read(std::chrono::seconds(30), &piece) ==
           RequestStream::ReadResult::OUTPUT) {
      all.token_ids.insert(all.token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
      all.finish_reason = piece.finish_reason;
      all.error_message = piece.error_message;
      if (piece.finished()) break;
    }
    return all;
  }

  static std::string* bundle_;
  FakeExecutor* executor_ = nullptr;
};

std::string* EngineTest::bundle_ = nullptr;

TEST_P(EngineTest, GeneratesWhatTheModelSays) {
  const std::unique_ptr<Engine> engine = open();
  const Result<RequestHandle> handle = engine->submit(request(5, 3));
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  const StreamOutput all = read_all(handle.value());
  EXPECT_EQ(all.token_ids, (std::vector<int32_t>{kFirstId + 5, kFirstId + 6, kFirstId + 7}));
  EXPECT_EQ(all.finish_reason, "length");
}

TEST_P(EngineTest, AFailedStepEndsItsRequestsWithItsReason) {
  const std::unique_ptr<Engine> engine = open();
  executor_->fail_next = true;
  const Result<RequestHandle> failed = engine->submit(request(5, 3));
  ASSERT_TRUE(failed.ok());
  const StreamOutput all = read_all(failed.value());
  EXPECT_EQ(all.finish_reason, "error");
  EXPECT_EQ(all.error_message, "the model broke");
  const Result<RequestHandle> next = engine->submit(request(5, 3));
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(read_all(next.value()).finish_reason, "length");
}

TEST_P(EngineTest, AFullQueueRefuses) {
  const std::unique_ptr<Engine> engine = open(/*max_queue=*/2);
  std::vector<RequestHandle> handles;
  int num_refused = 0;
  for (int i = 0; i < 50; ++i) {
    Result<RequestHandle> handle = engine->submit(request(20, 100));
    if (handle.ok()) {
      handles.push_back(handle.take());
    } else {
      EXPECT_EQ(handle.status().code(), StatusCode::RESOURCE_EXHAUSTED);
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 0);
  for (const RequestHandle& handle : handles) EXPECT_EQ(read_all(handle).finish_reason, "length");
}

TEST_P(EngineTest, FiveHundredAbortsLeaveNothing) {
  const std::unique_ptr<Engine> engine = open();
  std::minstd_rand random(1);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 500; ++i) {
    Result<RequestHandle> handle = engine->submit(request(1 + static_cast<int>(random() % 90), 30));
    ASSERT_TRUE(handle.ok());
    handles.push_back(handle.take());
    if (random() % 2 == 0) engine->abort(handles[random() % handles.size()].id);
  }
  for (const RequestHandle& handle : handles) engine->abort(handle.id);
  for (const RequestHandle& handle : handles) EXPECT_NE(read_all(handle).finish_reason, "");
  EXPECT_TRUE(engine->drain(std::chrono::seconds(30)));
  const EngineMetrics metrics = engine->metrics();
  EXPECT_EQ(metrics.scheduler.num_free_blocks, metrics.scheduler.num_usable_blocks);
  EXPECT_EQ(metrics.scheduler.num_running_requests + metrics.scheduler.num_waiting_requests, 0);
  EXPECT_EQ(metrics.finished_abort + metrics.finished_length, 500);
}

TEST_P(EngineTest, EightThreadsSubmitReadAndAbort) {
  const std::unique_ptr<Engine> engine = open();
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t + 1);
      for (int i = 0; i < 40; ++i) {
        const int32_t size = 1 + static_cast<int32_t>(random() % 60);
        const int32_t max_tokens = 1 + static_cast<int32_t>(random() % 30);
        const Result<RequestHandle> handle = engine->submit(request(size, max_tokens));
        const bool aborts = random() % 4 == 0;
        if (aborts && handle.ok()) engine->abort(handle.value().id);
        if (!handle.ok()) {
          ++num_wrong;
          continue;
        }
        const StreamOutput all = read_all(handle.value());
        for (size_t k = 0; k < all.token_ids.size(); ++k) {
          const auto last = kFirstId + (size - 1) % 20;
          num_wrong += all.token_ids[k] != last + 1 + static_cast<int32_t>(k);
        }
        num_wrong += !aborts && all.token_ids.size() != static_cast<size_t>(max_tokens);
        engine->metrics();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_TRUE(engine->drain(std::chrono::seconds(30)));
  EXPECT_EQ(engine->metrics().scheduler.num_free_blocks,
            engine->metrics().scheduler.num_usable_blocks);
}

// Opened and closed with requests waiting, running, half read, and aborted. PINFER_SOAK: how often.
TEST_P(EngineTest, OpeningAndClosingLeavesNothing) {
  const char* given = std::getenv("PINFER_SOAK");
  const int num_rounds = given == nullptr ? 50 : std::atoi(given);
  open()->shutdown();  // what the first one sets up for good
  const size_t num_files = num_entries("/proc/self/fd");
  const size_t num_threads = num_entries("/proc/self/task");
  std::minstd_rand random(7);
  for (int round = 0; round < num_rounds; ++round) {
    const std::unique_ptr<Engine> engine = open();
    std::vector<RequestHandle> handles;
    std::atomic<int> num_calls = 0;
    for (int i = 0; i < 6; ++i) {
      GenerateRequest made = request(1 + static_cast<int32_t>(random() % 90), 20);
      if (i == 5) made.callback = [&](const StreamOutput&) { ++num_calls; };
      Result<RequestHandle> handle = engine->submit(std::move(made));
      ASSERT_TRUE(handle.ok());
      handles.push_back(handle.take());
    }
    if (random() % 2 == 0) {
      EXPECT_EQ(read_all(handles[0]).finish_reason, "length");
    }
    if (random() % 2 == 0) engine->abort(handles[1].id);
    if (random() % 2 == 0) handles.erase(handles.begin() + 2);
    handles.back().stream->detach_callback();
    engine->shutdown();
    for (size_t i = 1; i + 1 < handles.size(); ++i) {
      EXPECT_NE(read_all(handles[i]).finish_reason, "") << round;
    }
  }
  EXPECT_EQ(num_entries("/proc/self/fd"), num_files);
  EXPECT_EQ(num_entries("/proc/self/task"), num_threads);
}

INSTANTIATE_TEST_SUITE_P(Scheduling, EngineTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "Async" : "Sync"; });

}  // namespace
}  // namespace pinfer
