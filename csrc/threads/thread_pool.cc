#include "csrc/threads/thread_pool.h"

#include <algorithm>
#include <utility>

#include "csrc/threads/cpu_list.h"

namespace pinfer {

namespace {

// What the calling thread is doing: its pool, and its place in the region it executes.
struct ThreadState {
  ThreadPool* pool = nullptr;
  int team_size = 1;
  int thread_index = 0;
  bool in_region = false;
  uint32_t singles_seen = 0;
};

thread_local ThreadState thread_state;
std::atomic<ThreadPool*> process_default{nullptr};

// The door of a region, in one word so that passing it is one atomic step: the region's generation
// (20 bits), whether it is open, and how many workers are inside.
constexpr uint32_t kInsideMask = (1u << 11) - 1;
constexpr uint32_t kOpen = 1u << 11;
constexpr int kGenerationShift = 12;
constexpr uint32_t kGenerationMask = (1u << 20) - 1;
constexpr int kMaxThreads = kInsideMask;

// Every so many regions all workers have to come, so that none can miss so many that it takes a
// new generation for one it has seen.
constexpr uint32_t kRollCallInterval = 1u << 16;

// About 50 microseconds of pauses: longer than the gaps between the kernels of one step, short
// enough to leave a core that somebody else needs.
constexpr int kSpins = 2000;

// Bytes that a waiting worker fetches between two looks for a new region, and of a cache line.
constexpr int64_t kReadAheadStep = 512;
constexpr int64_t kCacheLine = 64;

inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Returns the first value of `word` for which done(value) holds: spins a while, then sleeps.
// Whoever changes the word must notify it.
template <typename Done>
uint32_t wait_until(const std::atomic<uint32_t>& word, Done done) {
  for (int i = 0; i < kSpins; ++i) {
    const uint32_t value = word.load(std::memory_order_acquire);
    if (done(value)) return value;
    cpu_pause();
  }
  for (;;) {
    const uint32_t value = word.load(std::memory_order_acquire);
    if (done(value)) return value;
    word.wait(value, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int num_threads, std::vector<int> cpus)
    : num_threads_(std::clamp(num_threads, 1, kMaxThreads)), cpus_(std::move(cpus)) {
  workers_.reserve(static_cast<size_t>(num_threads_ - 1));
  for (int i = 1; i < num_threads_; ++i) {
    workers_.emplace_back([this, i] { worker_loop(i); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(RegionFunction fn, void* arg, int team_size) {
  if (team_size < 1 || team_size > num_threads_) team_size = num_threads_;
  if (team_size == 1 || in_region()) {
    run_alone(fn, arg);
  } else {
    start_region(fn, arg, team_size, Attendance::ALL);
  }
}

void ThreadPool::run_alone(RegionFunction fn, void* arg) { execute(fn, arg, 1, 0); }

void ThreadPool::start_region(RegionFunction fn, void* arg, int team_size, Attendance attendance) {
  std::lock_guard<std::mutex> lock(region_mutex_);
  fn_ = fn;
  arg_ = arg;
  team_size_ = team_size;
  entered_.store(0, std::memory_order_relaxed);
  singles_taken_.store(0, std::memory_order_relaxed);
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 1;
  if (generation % kRollCallInterval == 0) attendance = Attendance::ALL;
  // The door opens before the bell rings: a worker that hears the bell finds it open, or the region
  // over.
  door_.store((generation & kGenerationMask) << kGenerationShift | kOpen,
              std::memory_order_release);
  generation_.store(generation, std::memory_order_seq_cst);
  generation_.notify_all();

  execute(fn, arg, team_size, 0);

  if (attendance == Attendance::ALL) {
    const auto everybody = static_cast<uint32_t>(num_threads_ - 1);
    wait_until(entered_, [everybody](uint32_t entered) { return entered == everybody; });
  }
  door_.fetch_and(~kOpen, std::memory_order_acq_rel);
  wait_until(door_, [](uint32_t door) { return (door & kInsideMask) == 0; });
}

void ThreadPool::execute(RegionFunction fn, void* arg, int team_size, int thread_index) {
  const ThreadState outer = thread_state;
  thread_state = ThreadState{this, team_size, thread_index, true, 0};
  fn(arg, thread_index);
  thread_state = outer;
}

// Passes the door of a region that this worker has not been in. Either way *seen becomes the
// generation at the door: that region is then done with, for this worker.
bool ThreadPool::join_region(uint32_t* seen) {
  uint32_t door = door_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t generation = door >> kGenerationShift;
    if ((door & kOpen) == 0 || generation == *seen) {
      *seen = generation;
      return false;
    }
    if (door_.compare_exchange_weak(door, door + 1, std::memory_order_acquire,
                                    std::memory_order_acquire)) {
      *seen = generation;
      return true;
    }
  }
}

void ThreadPool::leave_region() {
  // The last one out of a closed region wakes its starter. The pool outlives this call: its
  // destructor joins the worker.
  const uint32_t before = door_.fetch_sub(1, std::memory_order_seq_cst);
  if ((before & (kOpen | kInsideMask)) == 1) door_.notify_all();
}

void ThreadPool::set_read_ahead(const void* begin, int64_t bytes) {
  read_ahead_.store(static_cast<const char*>(begin), std::memory_order_relaxed);
  read_ahead_bytes_.store(bytes, std::memory_order_relaxed);
}

// Until there is a region that this worker has not seen.
void ThreadPool::wait_for_region(int thread_index, uint32_t seen) {
  const auto is_new = [seen](uint32_t generation) {
    return (generation & kGenerationMask) != seen;
  };
  const int64_t bytes = read_ahead_bytes_.load(std::memory_order_relaxed);
  const char* ahead = read_ahead_.load(std::memory_order_relaxed) + (thread_index - 1) * bytes;
  for (int64_t i = 0; i + kReadAheadStep <= bytes; i += kReadAheadStep) {
    if (is_new(generation_.load(std::memory_order_acquire))) return;
    for (int64_t line = 0; line < kReadAheadStep; line += kCacheLine) {
      __builtin_prefetch(ahead + i + line, 0, 2);  // to the second level cache
    }
  }
  wait_until(generation_, is_new);
}

void ThreadPool::worker_loop(int thread_index) {
  thread_state.pool = this;
  if (!cpus_.empty()) bind_thread(cpus_[static_cast<size_t>(thread_index) % cpus_.size()]);
  uint32_t seen = 0;
  for (;;) {
    wait_for_region(thread_index, seen);
    if (stopping_.load(std::memory_order_acquire)) return;
    if (!join_region(&seen)) continue;
    entered_.fetch_add(1, std::memory_order_seq_cst);
    if (thread_index < team_size_) execute(fn_, arg_, team_size_, thread_index);
    entered_.notify_all();
    leave_region();
  }
}

void ThreadPool::barrier() {
  const auto team_size = static_cast<uint32_t>(thread_state.team_size);
  if (team_size == 1) return;
  const uint32_t generation = barrier_generation_.load(std::memory_order_acquire);
  if (barrier_arrived_.fetch_add(1, std::memory_order_acq_rel) == team_size - 1) {
    barrier_arrived_.store(0, std::memory_order_relaxed);
    barrier_generation_.fetch_add(1, std::memory_order_seq_cst);
    barrier_generation_.notify_all();
    return;
  }
  wait_until(barrier_generation_, [generation](uint32_t current) { return current != generation; });
}

bool ThreadPool::begin_single() {
  if (thread_state.team_size == 1) return true;
  uint32_t expected = thread_state.singles_seen++;
  return singles_taken_.compare_exchange_strong(expected, expected + 1, std::memory_order_acq_rel);
}

ThreadPool* ThreadPool::current() {
  ThreadPool* pool = thread_state.pool;
  return pool != nullptr ? pool : process_default.load(std::memory_order_acquire);
}

int ThreadPool::team_size() { return thread_state.team_size; }
int ThreadPool::thread_index() { return thread_state.thread_index; }
bool ThreadPool::in_region() { return thread_state.in_region; }

void ThreadPool::set_process_default(ThreadPool* pool) {
  process_default.store(pool, std::memory_order_release);
}

ThreadPool::Scope::Scope(ThreadPool* pool) : previous_(thread_state.pool) {
  thread_state.pool = pool;
}

ThreadPool::Scope::~Scope() { thread_state.pool = previous_; }

int current_num_threads() {
  ThreadPool* pool = ThreadPool::current();
  return pool != nullptr && !ThreadPool::in_region() ? pool->num_threads() : 1;
}

}  // namespace pinfer
