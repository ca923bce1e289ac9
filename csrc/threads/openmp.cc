#include "csrc/threads/openmp.h"

#include <mutex>

#include "csrc/threads/thread_pool.h"

namespace {

using pinfer::ThreadPool;

// OpenMP's unnamed critical section and its fallback for atomics: one lock each for the process.
std::mutex critical_mutex;
std::mutex atomic_mutex;

struct Region {
  void (*fn)(void*);
  void* data;
};

void run_region(void* arg, int) {
  const auto* region = static_cast<const Region*>(arg);
  region->fn(region->data);
}

}  // namespace

void pinfer_GOMP_parallel(void (*fn)(void*), void* data, unsigned num_threads, unsigned) {
  ThreadPool* pool = ThreadPool::current();
  if (pool == nullptr) {
    fn(data);
    return;
  }
  Region region{fn, data};
  pool->run(run_region, &region, pool->serial_regions() ? 1 : static_cast<int>(num_threads));
}

void pinfer_GOMP_barrier(void) {
  if (ThreadPool* pool = ThreadPool::current()) pool->barrier();
}

bool pinfer_GOMP_single_start(void) {
  ThreadPool* pool = ThreadPool::current();
  return pool == nullptr || pool->begin_single();
}

void pinfer_GOMP_critical_start(void) { critical_mutex.lock(); }
void pinfer_GOMP_critical_end(void) { critical_mutex.unlock(); }
void pinfer_GOMP_atomic_start(void) { atomic_mutex.lock(); }
void pinfer_GOMP_atomic_end(void) { atomic_mutex.unlock(); }

int pinfer_omp_get_num_threads(void) { return ThreadPool::team_size(); }
int pinfer_omp_get_thread_num(void) { return ThreadPool::thread_index(); }

// The size of the team that the next region would get.
int pinfer_omp_get_max_threads(void) {
  ThreadPool* pool = ThreadPool::current();
  return pool == nullptr || pool->serial_regions() ? 1 : pinfer::current_num_threads();
}

int pinfer_omp_in_parallel(void) { return ThreadPool::team_size() > 1 ? 1 : 0; }

namespace pinfer {

namespace {

struct NamedFunction {
  const char* name;
  void* function;
};

const NamedFunction kFunctions[] = {
    {"GOMP_parallel", reinterpret_cast<void*>(&pinfer_GOMP_parallel)},
    {"GOMP_barrier", reinterpret_cast<void*>(&pinfer_GOMP_barrier)},
    {"GOMP_single_start", reinterpret_cast<void*>(&pinfer_GOMP_single_start)},
    {"GOMP_critical_start", reinterpret_cast<void*>(&pinfer_GOMP_critical_start)},
    {"GOMP_critical_end", reinterpret_cast<void*>(&pinfer_GOMP_critical_end)},
    {"GOMP_atomic_start", reinterpret_cast<void*>(&pinfer_GOMP_atomic_start)},
    {"GOMP_atomic_end", reinterpret_cast<void*>(&pinfer_GOMP_atomic_end)},
    {"omp_get_num_threads", reinterpret_cast<void*>(&pinfer_omp_get_num_threads)},
    {"omp_get_thread_num", reinterpret_cast<void*>(&pinfer_omp_get_thread_num)},
    {"omp_get_max_threads", reinterpret_cast<void*>(&pinfer_omp_get_max_threads)},
    {"omp_in_parallel", reinterpret_cast<void*>(&pinfer_omp_in_parallel)},
};

}  // namespace

void* find_openmp_function(std::string_view name) {
  for (const NamedFunction& entry : kFunctions) {
    if (name == entry.name) return entry.function;
  }
  return nullptr;
}

std::vector<std::string> openmp_function_names() {
  std::vector<std::string> names;
  for (const NamedFunction& entry : kFunctions) names.emplace_back(entry.name);
  return names;
}

}  // namespace pinfer
