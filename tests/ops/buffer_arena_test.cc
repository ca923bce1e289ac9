#include "csrc/shim/buffer_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace pinfer {
namespace {

TEST(BufferArena, BuffersAreAlignedAndDoNotOverlap) {
  std::mt19937 random(1);
  struct Buffer {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Buffer> live;
  for (int round = 0; round < 20'000; ++round) {
    if (live.size() < 20 && random() % 2 == 0) {
      const size_t bytes = random() % 3 == 0 ? random() % 3'000'000 : random() % 3'000;
      auto* data = static_cast<unsigned char*>(allocate_buffer(bytes));
      ASSERT_NE(data, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(data) % kBufferAlignment, 0u);
      const auto mark = static_cast<unsigned char>(round);
      std::memset(data, mark, bytes);
      live.push_back({data, bytes, mark});
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const Buffer buffer = live.back();
      live.pop_back();
      if (buffer.bytes > 0) {
        ASSERT_EQ(buffer.data[0], buffer.mark);
        ASSERT_EQ(std::memcmp(buffer.data, buffer.data + 1, buffer.bytes - 1), 0);
      }
      free_buffer(buffer.data);
    }
  }
  for (const Buffer& buffer : live) free_buffer(buffer.data);
}

TEST(BufferArena, TakesWhatIsLargerThanARegion) {
  void* large = allocate_buffer(size_t{300} << 20);
  ASSERT_NE(large, nullptr);
  std::memset(large, 1, 100);
  free_buffer(large);
}

TEST(BufferArena, RefusesWhatNoMachineHas) {
  EXPECT_EQ(allocate_buffer(size_t{1} << 60), nullptr);
  EXPECT_EQ(allocate_buffer(SIZE_MAX - 10), nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(BufferArena, StepsOfAnySizeUseTheSamePlace) {
  std::vector<void*> first;
  for (size_t bytes = 1000; bytes < 1'000'000; bytes = bytes * 5 / 4) {
    void* a = allocate_buffer(bytes);
    void* b = allocate_buffer(bytes);
    first.push_back(a);
    free_buffer(a);
    free_buffer(b);
  }
  for (void* place : first) EXPECT_EQ(place, first[0]);
}
#endif

TEST(BufferArena, BuffersOutliveTheirThread) {
  std::vector<unsigned char*> buffers;
  std::thread([&] {
    for (int i = 0; i < 4; ++i) {
      buffers.push_back(static_cast<unsigned char*>(allocate_buffer(1000)));
    }
  }).join();
  for (unsigned char* buffer : buffers) std::memset(buffer, 7, 1000);
  for (unsigned char* buffer : buffers) free_buffer(buffer);
}

TEST(BufferArena, ThreadsGiveBackEachOthersBuffers) {
  std::vector<void*> shared(1000);
  std::thread taker([&] {
    for (void*& buffer : shared) buffer = allocate_buffer(100);
  });
  taker.join();
  std::thread a([&] {
    for (size_t i = 0; i < 500; ++i) free_buffer(shared[i]);
  });
  std::thread b([&] {
    for (size_t i = 500; i < 1000; ++i) free_buffer(shared[i]);
  });
  a.join();
  b.join();
}

}  // namespace
}  // namespace pinfer
