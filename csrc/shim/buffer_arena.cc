#include "csrc/shim/buffer_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace pinfer {
namespace {

// Reserved at first, and doubled; memory is used only where it is touched.
constexpr size_t kFirstRegionBytes = size_t{64} << 20;

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

// Part of the address space with the free ranges in it. Never moved.
class Region {
 public:
  static std::unique_ptr<Region> reserve(size_t bytes) {
    void* begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    // Long rows in turn are what tiles write: with small pages, each is a page of its own.
    ::madvise(begin, bytes, MADV_HUGEPAGE);
    return std::unique_ptr<Region>(new Region(static_cast<std::byte*>(begin), bytes));
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { ::munmap(begin_, bytes_); }

  size_t bytes() const { return bytes_; }

  // The lowest place that is large enough; nullptr if there is none.
  std::byte* take(size_t bytes) {
    const auto range = std::find_if(free_.begin(), free_.end(),
                                    [&](const auto& range) { return range.second >= bytes; });
    if (range == free_.end()) return nullptr;
    const auto [offset, size] = *range;
    free_.erase(range);
    if (size > bytes) free_.emplace(offset + bytes, size - bytes);
    return begin_ + offset;
  }

  void give(std::byte* place, size_t bytes) {
    auto range = free_.emplace(static_cast<size_t>(place - begin_), bytes).first;
    const auto next = std::next(range);
    if (next != free_.end() && range->first + range->second == next->first) {
      range->second += next->second;
      free_.erase(next);
    }
    if (range == free_.begin()) return;
    const auto previous = std::prev(range);
    if (previous->first + previous->second == range->first) {
      previous->second += range->second;
      free_.erase(range);
    }
  }

 private:
  Region(std::byte* begin, size_t bytes) : begin_(begin), bytes_(bytes), free_{{0, bytes}} {}

  std::byte* begin_;
  size_t bytes_;
  std::map<size_t, size_t> free_;  // offset -> bytes; neighbours are always joined
};

class Arena;

// Stands before each buffer.
struct alignas(kBufferAlignment) Header {
  std::shared_ptr<Arena> arena;  // lives as long as its buffers
  Region* region;
  size_t bytes;  // this header included
};

class Arena {
 public:
  // The place of a header and `bytes` after it. Null if memory is out.
  std::byte* take(size_t bytes, Region** region) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Region>& candidate : regions_) {
      if (std::byte* place = candidate->take(bytes)) {
        *region = candidate.get();
        return place;
      }
    }
    const size_t doubled = regions_.empty() ? kFirstRegionBytes : 2 * regions_.back()->bytes();
    std::unique_ptr<Region> added = Region::reserve(std::max(doubled, round_up(bytes, 4096)));
    if (added == nullptr) return nullptr;
    *region = regions_.emplace_back(std::move(added)).get();
    return (*region)->take(bytes);
  }

  void give(Region* region, std::byte* place, size_t bytes) {
    const std::lock_guard lock(mutex_);
    region->give(place, bytes);
  }

 private:
  std::mutex mutex_;  // buffers may come back from other threads
  std::vector<std::unique_ptr<Region>> regions_;
};

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

// Every buffer of its own, so that the sanitizer sees what is read outside of it or after its end.
void* allocate_buffer(size_t bytes) {
  return std::aligned_alloc(kBufferAlignment, round_up(std::max<size_t>(bytes, 1), 64));
}

void free_buffer(void* buffer) { std::free(buffer); }

#else

void* allocate_buffer(size_t bytes) {
  static thread_local const std::shared_ptr<Arena> arena = std::make_shared<Arena>();
  if (bytes > SIZE_MAX / 2) return nullptr;
  const size_t total = sizeof(Header) + round_up(bytes, kBufferAlignment);
  Region* region = nullptr;
  std::byte* place = arena->take(total, &region);
  if (place == nullptr) return nullptr;
  new (place) Header{arena, region, total};
  return place + sizeof(Header);
}

void free_buffer(void* buffer) {
  std::byte* place = static_cast<std::byte*>(buffer) - sizeof(Header);
  auto* header = reinterpret_cast<Header*>(place);
  // Kept beyond the header, which lies in the memory that is given back.
  const std::shared_ptr<Arena> arena = std::move(header->arena);
  Region* region = header->region;
  const size_t bytes = header->bytes;
  header->~Header();
  arena->give(region, place, bytes);
}

#endif

}  // namespace pinfer
