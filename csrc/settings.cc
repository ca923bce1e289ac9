// Process-wide settings of the ops: the default thread pool and the instruction set.
#include <mutex>

#include "csrc/kernels/cpu_features.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/threads/cpu_count.h"
#include "csrc/threads/thread_pool.h"

namespace {
constexpr int32_t kMaxDefaultThreads = 1024;
}  // namespace

int32_t pinfer_set_num_threads(int32_t num_threads) {
  return pinfer::run_op("set_num_threads", [&]() -> int32_t {
    PINFER_OPS_CHECK(num_threads >= 0 && num_threads <= kMaxDefaultThreads,
                     "set_num_threads: num_threads must be 0 (automatic) to %d, got %d",
                     kMaxDefaultThreads, num_threads);
    const int count = num_threads == 0 ? pinfer::default_thread_count().count : num_threads;
    // The pool lives as long as the process: threads may look it up until the very end.
    static std::mutex mutex;
    static pinfer::ThreadPool* default_pool = nullptr;
    std::lock_guard<std::mutex> lock(mutex);
    if (default_pool != nullptr && default_pool->num_threads() == count) return PINFER_OPS_OK;
    pinfer::ThreadPool* previous = default_pool;
    default_pool = new pinfer::ThreadPool(count);
    pinfer::ThreadPool::set_process_default(default_pool);
    delete previous;
    return PINFER_OPS_OK;
  });
}

int32_t pinfer_get_num_threads(void) { return pinfer::current_num_threads(); }

const char* pinfer_get_isa(void) { return pinfer::isa_name(pinfer::select_isa()); }

int32_t pinfer_force_isa(const char* name) {
  return pinfer::run_op("force_isa", [&]() -> int32_t {
    const std::string_view wanted = name == nullptr ? "" : name;
    if (wanted.empty()) {
      (void)pinfer::force_isa(std::nullopt);
      return PINFER_OPS_OK;
    }
    const std::optional<pinfer::Isa> isa = pinfer::isa_from_name(wanted);
    PINFER_OPS_CHECK(isa.has_value(),
                     "force_isa: expected portable, avx2, avx512 or avx512_bf16, got '%s'", name);
    PINFER_OPS_CHECK(pinfer::force_isa(isa), "force_isa: this processor does not support %s", name);
    return PINFER_OPS_OK;
  });
}
