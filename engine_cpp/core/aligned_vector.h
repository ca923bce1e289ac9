// Vectors whose memory begins at a multiple of 64 bytes, as compiled code and kernels may assume.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace pinfer {

inline constexpr size_t kTensorAlignment = 64;

template <typename T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}

  T* allocate(size_t n) {
    return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(kTensorAlignment)));
  }
  void deallocate(T* memory, size_t) {
    ::operator delete(memory, std::align_val_t(kTensorAlignment));
  }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

template <typename T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace pinfer
