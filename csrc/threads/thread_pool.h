// A fixed team of threads that runs parallel regions: our own kernels and the OpenMP regions of
// compiled artifacts share it.
//
// Waiting is bounded spinning, then sleeping (a futex behind std::atomic::wait): a region costs a
// microsecond when the threads are hot, nothing runs when the pool is idle, and another process
// that takes a core costs time slices, never a livelock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace pinfer {

// Thread-safety: run() and parallel_for() may be called from any thread; concurrent regions of one
// pool are queued. A region that starts inside a region runs on its own thread alone.
// Ownership: the pool owns its workers; the destructor joins them (REQUIRES: no region running).
class ThreadPool {
 public:
  // fn(arg, thread_index): must not throw.
  using RegionFunction = void (*)(void* arg, int thread_index);

  // num_threads counts the calling thread: num_threads - 1 workers are started. Values below 1
  // mean 1.
  // Workers are bound to `cpus` in order, the first of them to the second one (the calling thread
  // binds itself); none: to nothing.
  explicit ThreadPool(int num_threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls fn once on each of team_size threads (0 or too many: all of the pool's), the calling one
  // being index 0, and returns when all have returned. barrier() and begin_single() may be used
  // inside.
  void run(RegionFunction fn, void* arg, int team_size = 0);

  // Calls f(begin, end) for pieces of [0, n) of at most `grain` elements, handed out in ascending
  // order as threads become free. A worker that comes too late (asleep, or without a core) is not
  // waited for. f must not throw.
  template <typename F>
  void parallel_for(int64_t n, int64_t grain, F&& f);

  // As parallel_for, with pieces that become smaller, each a multiple of `grain` and about half of
  // an equal share of what is left: threads end together, also where one is faster than another.
  template <typename F>
  void parallel_for_guided(int64_t n, int64_t grain, F&& f);

  // The size of the first piece of parallel_for_guided.
  int64_t guided_piece(int64_t n, int64_t grain) const;

  // What workers fetch into their caches while they wait for the next region: the first of them
  // `bytes` from `begin` on, the second the next `bytes`, ... It takes the place of what was set
  // before; memory that is not mapped does no harm. Called between regions.
  void set_read_ahead(const void* begin, int64_t bytes);

  // Inside run(): waits for the other threads of the team.
  void barrier();

  // Inside run(): true for exactly one thread of the team for each call in program order.
  bool begin_single();

  // While set, OpenMP regions of compiled artifacts run on the calling thread (a team of 1): for
  // small steps, where a fork-join buys nothing. Our own kernels are not affected. Set it only
  // between regions.
  void set_serial_regions(bool serial) { serial_regions_.store(serial, std::memory_order_relaxed); }
  bool serial_regions() const { return serial_regions_.load(std::memory_order_relaxed); }

  // The pool that kernels called on this thread use: the innermost Scope's, else the process
  // default, else null (serial).
  static ThreadPool* current();

  // The team that the calling thread is in (size 1, index 0 outside of regions).
  static int team_size();
  static int thread_index();
  static bool in_region();

  // The fallback of current() for threads without a Scope. The pool is never destroyed here.
  static void set_process_default(ThreadPool* pool);

  // Makes `pool` current on this thread for the scope's life.
  class Scope {
   public:
    explicit Scope(ThreadPool* pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadPool* previous_;
  };

 private:
  enum class Attendance { ALL, WHO_COMES };

  void start_region(RegionFunction fn, void* arg, int team_size, Attendance attendance);
  void run_alone(RegionFunction fn, void* arg);
  void worker_loop(int thread_index);
  void wait_for_region(int thread_index, uint32_t seen);
  bool join_region(uint32_t* seen);
  void leave_region();
  void execute(RegionFunction fn, void* arg, int team_size, int thread_index);

  const int num_threads_;
  const std::vector<int> cpus_;
  std::vector<std::thread> workers_;
  std::mutex region_mutex_;  // one region at a time
  std::atomic<bool> serial_regions_{false};

  // Written before a region opens, read by workers behind it.
  std::atomic<const char*> read_ahead_{nullptr};
  std::atomic<int64_t> read_ahead_bytes_{0};

  // The region that runs now. Written by its starter before it opens `door_`; read by workers that
  // have passed the door.
  RegionFunction fn_ = nullptr;
  void* arg_ = nullptr;
  int team_size_ = 1;
  std::atomic<bool> stopping_{false};

  // Each on its own cache line: they are what the threads spin on.
  alignas(64) std::atomic<uint32_t> generation_{0};  // grows with each region; workers wait on it
  alignas(64) std::atomic<uint32_t> door_{0};        // generation, open or not, workers inside
  alignas(64) std::atomic<uint32_t> entered_{0};     // workers that came in to this region so far
  alignas(64) std::atomic<uint32_t> barrier_arrived_{0};
  std::atomic<uint32_t> barrier_generation_{0};
  std::atomic<uint32_t> singles_taken_{0};
};

template <typename F>
void ThreadPool::parallel_for(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  if (n <= grain || num_threads_ == 1 || in_region()) {
    f(int64_t{0}, n);
    return;
  }
  struct Work {
    std::atomic<int64_t> next;
    int64_t n, grain;
    std::remove_reference_t<F>* f;
  } work{{0}, n, grain, &f};
  start_region(
      [](void* arg, int) {
        auto* w = static_cast<Work*>(arg);
        for (;;) {
          const int64_t begin = w->next.fetch_add(w->grain, std::memory_order_relaxed);
          if (begin >= w->n) return;
          (*w->f)(begin, begin + w->grain < w->n ? begin + w->grain : w->n);
        }
      },
      &work, num_threads_, Attendance::WHO_COMES);
}

inline int64_t ThreadPool::guided_piece(int64_t n, int64_t grain) const {
  const int64_t share = n / (2 * num_threads_);
  const int64_t piece = std::max<int64_t>(1, (share + grain / 2) / grain) * grain;
  return std::min(piece, n);
}

template <typename F>
void ThreadPool::parallel_for_guided(int64_t n, int64_t grain, F&& f) {
  if (n <= 0) return;
  if (n <= grain || num_threads_ == 1 || in_region()) {
    f(int64_t{0}, n);
    return;
  }
  struct Work {
    const ThreadPool* pool;
    std::atomic<int64_t> next;
    int64_t n, grain;
    std::remove_reference_t<F>* f;
  } work{this, {0}, n, grain, &f};
  start_region(
      [](void* arg, int) {
        auto* w = static_cast<Work*>(arg);
        int64_t begin = w->next.load(std::memory_order_relaxed);
        while (begin < w->n) {
          const int64_t end = begin + w->pool->guided_piece(w->n - begin, w->grain);
          if (!w->next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
          (*w->f)(begin, end);
          begin = w->next.load(std::memory_order_relaxed);
        }
      },
      &work, num_threads_, Attendance::WHO_COMES);
}

// parallel_for on the current pool; serial where there is none.
template <typename F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  ThreadPool* pool = ThreadPool::current();
  if (pool != nullptr) {
    pool->parallel_for(n, grain, f);
  } else if (n > 0) {
    f(int64_t{0}, n);
  }
}

// Threads that a parallel_for on the current pool would use.
int current_num_threads();

}  // namespace pinfer
