#include "csrc/threads/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <vector>

namespace pinfer {
namespace {

struct Counters {
  std::atomic<int> calls[16] = {};
  std::atomic<int> team_size{0};
};

TEST(ThreadPoolTest, RunCallsEveryThreadOnce) {
  for (int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    ASSERT_EQ(pool.num_threads(), num_threads);
    for (int round = 0; round < 200; ++round) {
      Counters counters;
      pool.run(
          [](void* arg, int thread_index) {
            auto* c = static_cast<Counters*>(arg);
            c->calls[thread_index].fetch_add(1);
            if (thread_index == ThreadPool::thread_index()) c->team_size = ThreadPool::team_size();
          },
          &counters);
      EXPECT_EQ(counters.team_size, num_threads);
      for (int i = 0; i < 16; ++i) ASSERT_EQ(counters.calls[i], i < num_threads ? 1 : 0);
    }
  }
}

TEST(ThreadPoolTest, SmallerTeam) {
  ThreadPool pool(4);
  Counters counters;
  const auto count = [](void* arg, int thread_index) {
    auto* c = static_cast<Counters*>(arg);
    c->calls[thread_index].fetch_add(1);
    c->team_size = ThreadPool::team_size();
  };
  pool.run(count, &counters, 2);
  EXPECT_EQ(counters.team_size, 2);
  EXPECT_EQ(counters.calls[0], 1);
  EXPECT_EQ(counters.calls[1], 1);
  EXPECT_EQ(counters.calls[2] + counters.calls[3], 0);
  pool.run(count, &counters, 9);  // more than there are
  EXPECT_EQ(counters.team_size, 4);
}

TEST(ThreadPoolTest, ParallelForCoversEverythingOnce) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int64_t n : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {0, 1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
        });
        for (const auto& count : seen) ASSERT_EQ(count, 1);
      }
    }
  }
}

TEST(ThreadPoolTest, GuidedPiecesCoverEverythingOnce) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int64_t n : {0, 1, 7, 64, 1001}) {
      for (int64_t grain : {1, 4, 5000}) {
        std::vector<std::atomic<int>> counts(static_cast<size_t>(n));
        std::atomic<int> pieces{0}, broken{0};
        pool.parallel_for_guided(n, grain, [&](int64_t begin, int64_t end) {
          pieces.fetch_add(1);
          if (begin % grain != 0 || (end != n && end % grain != 0)) broken.fetch_add(1);
          for (int64_t i = begin; i < end; ++i) counts[static_cast<size_t>(i)].fetch_add(1);
        });
        for (auto& count : counts) ASSERT_EQ(count, 1) << num_threads << " " << n << " " << grain;
        EXPECT_EQ(broken, 0);
        if (num_threads > 1 && n >= 2 * grain) {
          EXPECT_GE(pieces, 2);
        }
      }
    }
  }
}

TEST(ThreadPoolTest, GuidedPiecesBecomeSmaller) {
  ThreadPool pool(2);
  EXPECT_EQ(pool.guided_piece(192, 4), 48);
  EXPECT_EQ(pool.guided_piece(60, 4), 16);  // 15, rounded to the grain
  EXPECT_EQ(pool.guided_piece(5, 4), 4);
  EXPECT_EQ(pool.guided_piece(3, 4), 3);
}

// Fetching is no access: whatever lies there, nothing happens.
TEST(ThreadPoolTest, ReadAheadOfAnythingIsHarmless) {
  std::vector<char> memory(1 << 16);
  const void* unmapped = reinterpret_cast<const void*>(uintptr_t{64});
  for (const void* begin : {static_cast<const void*>(memory.data()), unmapped}) {
    ThreadPool pool(3);
    std::atomic<int64_t> sum{0};
    for (int round = 0; round < 100; ++round) {
      pool.set_read_ahead(begin, round % 2 == 0 ? 1 << 16 : 1000);
      pool.parallel_for(30, 1, [&](int64_t i, int64_t) { sum.fetch_add(i); });
    }
    EXPECT_EQ(sum, 100 * 435);
  }
}

TEST(ThreadPoolTest, MixedRegionsInARow) {
  ThreadPool pool(3);
  int64_t total = 0;
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int64_t> sum{0};
    if (i % 3 == 0) {
      pool.run([](void* arg, int index) { *static_cast<std::atomic<int64_t>*>(arg) += index + 1; },
               &sum);
      ASSERT_EQ(sum, 6);
    } else {
      pool.parallel_for(10, 1, [&](int64_t begin, int64_t) { sum += begin; });
      ASSERT_EQ(sum, 45);
    }
    total += sum;
  }
  EXPECT_GT(total, 0);
}

TEST(ThreadPoolTest, BarrierSeparatesPhases) {
  constexpr int kThreads = 3, kPhases = 50;
  ThreadPool pool(kThreads);
  struct State {
    ThreadPool* pool;
    std::atomic<int> arrived{0};
    std::atomic<int> wrong{0};
  } state{&pool, {}, {}};
  pool.run(
      [](void* arg, int) {
        auto* s = static_cast<State*>(arg);
        for (int phase = 0; phase < kPhases; ++phase) {
          s->arrived.fetch_add(1);
          s->pool->barrier();
          if (s->arrived.load() != (phase + 1) * kThreads) s->wrong.fetch_add(1);
          s->pool->barrier();
        }
      },
      &state);
  EXPECT_EQ(state.wrong, 0);
}

TEST(ThreadPoolTest, SingleIsTakenOncePerOccurrence) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    struct State {
      ThreadPool* pool;
      std::atomic<int> taken[5] = {};
    } state{&pool};
    pool.run(
        [](void* arg, int) {
          auto* s = static_cast<State*>(arg);
          for (auto& count : s->taken) {
            if (s->pool->begin_single()) count.fetch_add(1);
          }
        },
        &state);
    for (const auto& count : state.taken) ASSERT_EQ(count, 1);
  }
}

TEST(ThreadPoolTest, NestedRegionsAreSerial) {
  ThreadPool pool(3);
  ThreadPool::Scope scope(&pool);
  std::atomic<int> inner_calls{0}, outer_calls{0};
  struct State {
    std::atomic<int>* inner;
    std::atomic<int>* outer;
    ThreadPool* pool;
  } state{&inner_calls, &outer_calls, &pool};
  pool.run(
      [](void* arg, int thread_index) {
        auto* s = static_cast<State*>(arg);
        s->outer->fetch_add(1);
        EXPECT_EQ(ThreadPool::current(), s->pool);
        s->pool->run(
            [](void* inner, int index) {
              static_cast<std::atomic<int>*>(inner)->fetch_add(1);
              EXPECT_EQ(index, 0);
              EXPECT_EQ(ThreadPool::team_size(), 1);
            },
            s->inner);
        EXPECT_EQ(ThreadPool::team_size(), 3);
        EXPECT_EQ(ThreadPool::thread_index(), thread_index);
        EXPECT_EQ(current_num_threads(), 1);
        int pieces = 0;
        parallel_for(100, 1, [&](int64_t begin, int64_t end) {
          ++pieces;
          EXPECT_EQ(end - begin, 100);
        });
        EXPECT_EQ(pieces, 1);
      },
      &state);
  EXPECT_EQ(outer_calls, 3);
  EXPECT_EQ(inner_calls, 3);
}

TEST(ThreadPoolTest, ScopesNest) {
  ThreadPool first(1), second(2);
  EXPECT_EQ(ThreadPool::current(), nullptr);
  EXPECT_EQ(current_num_threads(), 1);
  {
    ThreadPool::Scope outer(&first);
    EXPECT_EQ(ThreadPool::current(), &first);
    {
      ThreadPool::Scope inner(&second);
      EXPECT_EQ(current_num_threads(), 2);
    }
    EXPECT_EQ(ThreadPool::current(), &first);
  }
  EXPECT_EQ(ThreadPool::current(), nullptr);
}

TEST(ThreadPoolTest, ConcurrentCallersAreQueued) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        pool.parallel_for(8, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 8);
}

TEST(ThreadPoolTest, MoreThreadsThanProcessors) {
  ThreadPool pool(16);
  for (int i = 0; i < 50; ++i) {
    struct State {
      ThreadPool* pool;
      std::atomic<int> count{0};
    } state{&pool, {}};
    pool.run(
        [](void* arg, int) {
          auto* s = static_cast<State*>(arg);
          s->count.fetch_add(1);
          s->pool->barrier();
          EXPECT_EQ(s->count.load(), 16);
        },
        &state);
    ASSERT_EQ(state.count, 16);
  }
}

double process_cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(ThreadPoolTest, IdlePoolUsesNoProcessorTime) {
  ThreadPool pool(4);
  pool.parallel_for(4, 1, [](int64_t, int64_t) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // spins end
  const double before = process_cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(process_cpu_seconds() - before, 0.02);
}

TEST(ThreadPoolTest, StartsAndStopsOften) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(3);
    if (i % 2 == 0) pool.parallel_for(3, 1, [](int64_t, int64_t) {});
  }
}

}  // namespace
}  // namespace pinfer
