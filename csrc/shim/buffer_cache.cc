#include "csrc/shim/buffer_cache.h"

#include <bit>
#include <cstdlib>
#include <vector>

namespace pinfer {
namespace {

// Sizes are rounded up to one of eight steps per power of two, so that neighbouring sizes share
// buffers and at most an eighth is wasted.
constexpr size_t kMinBytes = 512;  // from here every step is a multiple of the alignment
constexpr int kStepsLog2 = 3;
constexpr size_t kNumClasses = 64 << kStepsLog2;

struct SizeClass {
  size_t index;
  size_t bytes;
};

SizeClass size_class(size_t bytes) {
  if (bytes < kMinBytes) bytes = kMinBytes;
  const int shift = std::bit_width(bytes - 1) - 1 - kStepsLog2;
  const size_t steps = (bytes - 1) >> shift;  // in [8, 15]
  return {(static_cast<size_t>(shift) << kStepsLog2) + steps - (1u << kStepsLog2), (steps + 1)
                                                                                       << shift};
}

class BufferCache {
 public:
  BufferCache() : free_(kNumClasses) {}
  ~BufferCache() { clear(); }

  void* take(size_t bytes) {
    const SizeClass wanted = size_class(bytes);
    std::vector<void*>& list = free_[wanted.index];
    if (!list.empty()) {
      void* buffer = list.back();
      list.pop_back();
      cached_bytes_ -= wanted.bytes;
      return buffer;
    }
    // A step of new sizes: what the last steps left behind must not pile up.
    if (cached_bytes_ > kMaxCachedBytes) clear();
    return std::aligned_alloc(kBufferAlignment, wanted.bytes);
  }

  void give(void* buffer, size_t bytes) {
    const SizeClass given = size_class(bytes);
    free_[given.index].push_back(buffer);
    cached_bytes_ += given.bytes;
  }

 private:
  void clear() {
    for (std::vector<void*>& list : free_) {
      for (void* buffer : list) std::free(buffer);
      list.clear();
    }
    cached_bytes_ = 0;
  }

  std::vector<std::vector<void*>> free_;
  size_t cached_bytes_ = 0;
};

BufferCache& thread_cache() {
  static thread_local BufferCache cache;
  return cache;
}

}  // namespace

void* allocate_buffer(size_t bytes) { return thread_cache().take(bytes); }

void free_buffer(void* buffer, size_t bytes) { thread_cache().give(buffer, bytes); }

}  // namespace pinfer
