#include "core/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace pinfer {
namespace {

std::byte* round_up(std::byte* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return p + ((address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes - address);
}

// Address space for that many huge pages, at a multiple of their size; nullptr if there is none.
std::byte* reserve(size_t num_pages) {
  const size_t size = num_pages * kHugePageBytes;
  void* mapped = ::mmap(nullptr, size + kHugePageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(mapped);
  std::byte* const end = begin + size + kHugePageBytes;
  std::byte* const aligned = round_up(begin);
  if (aligned > begin) ::munmap(begin, static_cast<size_t>(aligned - begin));
  if (aligned + size < end) ::munmap(aligned + size, static_cast<size_t>(end - aligned - size));
  // Not in core dumps: they are what the file holds.
  ::madvise(aligned, size, MADV_DONTDUMP);
  if (::madvise(aligned, size, MADV_HUGEPAGE) != 0) {
    ::munmap(aligned, size);
    return nullptr;
  }
  return aligned;
}

// After a failed move, which may have left a hole where the file's pages were.
void restore(std::byte* target, const std::byte* staged, size_t size) {
  std::vector<unsigned char> residency(size / static_cast<size_t>(::sysconf(_SC_PAGESIZE)));
  if (::mincore(target, size, residency.data()) == 0 || errno != ENOMEM) return;
  void* mapped =
      ::mmap(target, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (mapped == MAP_FAILED) std::abort();  // there are weights missing
  std::memcpy(mapped, staged, size);
  ::mprotect(mapped, size, PROT_READ);
}

}  // namespace

bool has_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  return std::getline(file, modes) && modes.find("[never]") == std::string::npos;
}

HugePageCopy::HugePageCopy(std::span<const std::byte> mapped) {
  auto* const begin = const_cast<std::byte*>(mapped.data());
  std::byte* const first = round_up(begin);
  std::byte* const end = begin + mapped.size();
  if (first >= end) return;
  const size_t num_pages = static_cast<size_t>(end - first) / kHugePageBytes;
  if (num_pages == 0) return;
  staged_ = reserve(num_pages);
  if (staged_ == nullptr) return;
  target_ = first;
  num_pages_ = num_pages;
}

HugePageCopy::~HugePageCopy() { release(); }

HugePageCopy::HugePageCopy(HugePageCopy&& other) noexcept { *this = std::move(other); }

HugePageCopy& HugePageCopy::operator=(HugePageCopy&& other) noexcept {
  if (this != &other) {
    release();
    target_ = std::exchange(other.target_, nullptr);
    staged_ = std::exchange(other.staged_, nullptr);
    num_pages_ = std::exchange(other.num_pages_, 0);
    moved_ = std::exchange(other.moved_, 0);
  }
  return *this;
}

void HugePageCopy::release() {
  if (moved_ < num_pages_) {
    ::munmap(staged_ + moved_ * kHugePageBytes, (num_pages_ - moved_) * kHugePageBytes);
  }
  num_pages_ = moved_ = 0;
}

void HugePageCopy::advance(size_t max_pages, const ForEach& for_each) {
  const size_t count = std::min(max_pages, num_pages_ - moved_);
  if (count == 0) return;
  const size_t offset = moved_ * kHugePageBytes, size = count * kHugePageBytes;
  std::byte* const staged = staged_ + offset;
  std::byte* const target = target_ + offset;
  for_each(count, [&](size_t i) {
    std::memcpy(staged + i * kHugePageBytes, target + i * kHugePageBytes, kHugePageBytes);
  });
  if (::mprotect(staged, size, PROT_READ) != 0 ||
      ::mremap(staged, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED) {
    restore(target, staged, size);
    release();
    return;
  }
  moved_ += count;
}

}  // namespace pinfer
