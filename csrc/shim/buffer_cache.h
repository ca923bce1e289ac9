// Reuses the intermediate buffers of compiled code: every layer of a step asks for the same sizes.
#pragma once

#include <cstddef>

namespace pinfer {

// Every buffer is aligned to this, which compiled code and kernels may rely on.
inline constexpr size_t kBufferAlignment = 64;

// A buffer of at least `bytes` bytes, aligned, with undefined contents; nullptr if memory is out.
// Buffers come from and return to a cache of the calling thread; one may be freed on another
// thread than the one that took it. The cache holds at most kMaxCachedBytes beside what is in use.
void* allocate_buffer(size_t bytes);
void free_buffer(void* buffer, size_t bytes);

inline constexpr size_t kMaxCachedBytes = size_t{64} << 20;

}  // namespace pinfer
