// How weights that are read once are fetched ahead: processors' own prefetching does not keep up
// with tiles of several rows.
#pragma once

#include <cstdint>

namespace pinfer {
namespace {

// How far ahead, and into which cache. Where memory is the limit, the second level: the first one
// has too few lines in flight for memory's latency (measured, two cores, bfloat16, 1 and 8 rows: 26
// and 20 GB/s into the first level, 32 and 25 into the second). Where arithmetic is, the first
// level, so that it does not wait for the second one.
enum class Fetch { FAR, NEAR };

template <Fetch fetch>
constexpr int64_t kFetchBytes = fetch == Fetch::FAR ? 4096 : 2048;

// The line at p, which is so far ahead.
template <Fetch fetch>
inline void prefetch(const void* p) {
  __builtin_prefetch(p, 0, fetch == Fetch::FAR ? 2 : 3);
}

}  // namespace
}  // namespace pinfer
