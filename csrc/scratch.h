// Scratch memory of an op: kept by the thread between calls, 64-byte aligned.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace pinfer {

class Scratch {
 public:
  // At least `size` bytes, uninitialised, valid until the next call. Throws std::bad_alloc.
  void* reserve(size_t size) {
    if (size > size_) {
      const size_t rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
      memory_.reset();
      size_ = 0;
      memory_.reset(std::aligned_alloc(kAlignment, rounded));
      if (memory_ == nullptr) throw std::bad_alloc();
      size_ = rounded;
    }
    return memory_.get();
  }

  template <typename T>
  T* reserve_array(int64_t count) {
    return static_cast<T*>(reserve(static_cast<size_t>(count) * sizeof(T)));
  }

 private:
  static constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t size_ = 0;
};

}  // namespace pinfer
