// Weights in huge pages. A mapped file lies in pages of 4 KB, which every read of the weights has
// to look up; where the processor is virtual, that costs a sixth of the memory's speed and more
// (docs/performance.md). Its contents are copied into huge pages, which then take the place of the
// file's under the same addresses.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace pinfer {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Whether the system gives huge pages to who asks for them (transparent_hugepage is not "never").
bool has_huge_pages();

// The copying, in portions, so that it can be spread over many steps. Used by one thread. Memory
// that has been moved is unmapped by whoever unmaps the file.
class HugePageCopy {
 public:
  HugePageCopy() = default;  // nothing to do
  // Of a private mapping, which must outlive this. What does not fill a huge page stays.
  explicit HugePageCopy(std::span<const std::byte> mapped);
  ~HugePageCopy();
  HugePageCopy(HugePageCopy&& other) noexcept;
  HugePageCopy& operator=(HugePageCopy&& other) noexcept;

  size_t num_pages() const { return num_pages_; }
  bool is_done() const { return moved_ == num_pages_; }

  // Calls copy(i) for i = 0 ... count - 1, in any order, also at once; returns when all have run.
  using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& copy)>;

  // Moves the next pages, `max_pages` at most. Nobody uses the mapping meanwhile. Where the system
  // refuses, the rest stays as it is.
  void advance(size_t max_pages, const ForEach& for_each);

 private:
  void release();

  std::byte* target_ = nullptr;  // the first huge page's place in the mapping
  std::byte* staged_ = nullptr;  // where copies are made: num_pages_ of them, reserved
  size_t num_pages_ = 0;
  size_t moved_ = 0;
};

}  // namespace pinfer
