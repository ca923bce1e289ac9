// Device memory of intermediate buffers. What buffer_arena.h is for the CPU: a step takes and gives
// back the same few buffers in every layer, so they are placed first fit in regions that are kept.
// All work is in one stream's order, so a buffer may be given back, and taken again, while kernels
// that use it have not run yet.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pinfer {

inline constexpr size_t kCudaBufferAlignment = 256;

class CudaArena {
 public:
  // allocate returns nullptr where memory is out, with the reason recorded by itself.
  CudaArena(std::function<void*(size_t)> allocate, std::function<void(void*)> free)
      : allocate_(std::move(allocate)), free_(std::move(free)) {}
  ~CudaArena();
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  // Aligned, with undefined contents; nullptr if memory is out. Thread-safe.
  void* take(size_t bytes);
  void give(void* buffer);

  size_t region_bytes() const;  // of all regions
  size_t num_taken() const;     // buffers that have not been given back
  size_t peak_bytes() const;    // the most that was taken at once

 private:
  struct Region {
    char* base;
    size_t bytes;
    std::map<size_t, size_t> free;  // offset -> bytes; neighbours are always joined
  };
  struct Place {
    size_t region, offset, bytes;
  };
  void* take_from(size_t region, size_t bytes);

  mutable std::mutex mutex_;
  std::function<void*(size_t)> allocate_;
  std::function<void(void*)> free_;
  std::vector<Region> regions_;
  std::unordered_map<void*, Place> taken_;
  size_t taken_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace pinfer
