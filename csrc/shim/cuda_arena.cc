#include "csrc/shim/cuda_arena.h"

#include <algorithm>
#include <iterator>

namespace pinfer {
namespace {

// Regions are at least as large; each is as large as all before it together, so there are few.
constexpr size_t kLeastRegionBytes = size_t{2} << 20;

size_t round_up(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

}  // namespace

CudaArena::~CudaArena() {
  for (const Region& region : regions_) free_(region.base);
}

void* CudaArena::take(size_t bytes) {
  if (bytes > SIZE_MAX / 4) return nullptr;
  bytes = round_up(std::max<size_t>(bytes, 1), kCudaBufferAlignment);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (void* buffer = take_from(i, bytes)) return buffer;
  }
  size_t all = 0;
  for (const Region& region : regions_) all += region.bytes;
  size_t wanted = round_up(std::max({bytes, kLeastRegionBytes, all}), kLeastRegionBytes);
  void* base = allocate_(wanted);
  if (base == nullptr && wanted > bytes) {  // not room for more, perhaps for this
    wanted = bytes;
    base = allocate_(wanted);
  }
  if (base == nullptr) return nullptr;
  regions_.push_back({static_cast<char*>(base), wanted, {{0, wanted}}});
  return take_from(regions_.size() - 1, bytes);
}

void* CudaArena::take_from(size_t region, size_t bytes) {
  std::map<size_t, size_t>& free = regions_[region].free;
  const auto range = std::find_if(free.begin(), free.end(),
                                  [&](const auto& each) { return each.second >= bytes; });
  if (range == free.end()) return nullptr;
  const auto [offset, size] = *range;
  free.erase(range);
  if (size > bytes) free.emplace(offset + bytes, size - bytes);
  void* buffer = regions_[region].base + offset;
  taken_.emplace(buffer, Place{region, offset, bytes});
  taken_bytes_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, taken_bytes_);
  return buffer;
}

void CudaArena::give(void* buffer) {
  if (buffer == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(buffer);
  if (found == taken_.end()) return;
  const Place place = found->second;
  taken_.erase(found);
  taken_bytes_ -= place.bytes;
  std::map<size_t, size_t>& free = regions_[place.region].free;
  auto range = free.emplace(place.offset, place.bytes).first;
  const auto next = std::next(range);
  if (next != free.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free.erase(next);
  }
  if (range == free.begin()) return;
  const auto previous = std::prev(range);
  if (previous->first + previous->second == range->first) {
    previous->second += range->second;
    free.erase(range);
  }
}

size_t CudaArena::region_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t all = 0;
  for (const Region& region : regions_) all += region.bytes;
  return all;
}

size_t CudaArena::num_taken() const {
  const std::lock_guard lock(mutex_);
  return taken_.size();
}

size_t CudaArena::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

}  // namespace pinfer
