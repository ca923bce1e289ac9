// Memory of the intermediate buffers of compiled code. A step takes and gives back the same few
// buffers in every layer, and has given back all of them when it ends; so buffers are placed first
// fit in a region that is kept, and a thread's memory stays at what its largest step needed,
// whatever sizes follow each other.
#pragma once

#include <cstddef>

namespace pinfer {

// Every buffer is aligned to this, which compiled code and kernels may rely on.
inline constexpr size_t kBufferAlignment = 64;

// A buffer of at least `bytes` bytes, aligned, with undefined contents; nullptr if memory is out.
// It lies in the calling thread's arena; free_buffer() may be called on any thread, also after the
// one that took it has ended. Thread-safe.
void* allocate_buffer(size_t bytes);
void free_buffer(void* buffer);

}  // namespace pinfer
