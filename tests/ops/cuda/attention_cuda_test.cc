// Attention over splits and by tiles, against a softmax in double.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "attention_step.h"
#include "csrc/kernels/kernels_cuda.h"
#include "cuda_emulation.h"

namespace pinfer::cuda {
namespace {

constexpr int32_t kFloat32 = PINFER_FLOAT32, kBFloat16 = PINFER_BFLOAT16, kFloat16 = PINFER_FLOAT16,
                  kFloat8 = PINFER_FLOAT8_E4M3;

double split_error(const AttentionCase& c, unsigned seed, int64_t split_size) {
  emulation::set_seed(seed);
  const AttentionStep step(c, seed);
  const AttentionTask task = step.task();
  const size_t bytes = attention_workspace_bytes(task.num_tokens, c.num_heads, c.head_dim,
                                                 c.max_seq_len(), split_size);
  const DeviceTensor workspace(static_cast<int64_t>(bytes / 4), kFloat32);
  EXPECT_EQ(attend_split(task, c.max_rows(), c.max_seq_len(), split_size, workspace.data(), bytes,
                         nullptr),
            0)
      << pinfer_ops_last_error();
  return step.error();
}

double prefill_error(const AttentionCase& c, unsigned seed) {
  emulation::set_seed(seed);
  const AttentionStep step(c, seed);
  EXPECT_EQ(attend_prefill(step.task(), nullptr), 0) << pinfer_ops_last_error();
  return step.error();
}

// Which dtypes go together: cache, activations.
constexpr std::pair<int32_t, int32_t> kDtypes[] = {
    {kFloat32, kFloat32},  {kFloat32, kBFloat16}, {kBFloat16, kBFloat16},
    {kBFloat16, kFloat32}, {kFloat16, kFloat16},  {kFloat16, kFloat32},
    {kFloat8, kBFloat16},  {kFloat8, kFloat16},   {kFloat8, kFloat32}};

TEST(AttentionCuda, SplitsOfEveryDtype) {
  for (const auto& [cache, dtype] : kDtypes) {
    const AttentionCase c = {cache, dtype, 64, 8, 2, 16, {{1, 1}, {1, 70}, {1, 190}}};
    EXPECT_LT(split_error(c, 1, 64), 1) << c.name();
    EXPECT_LT(split_error(c, 2, 256), 1) << c.name();
  }
}

TEST(AttentionCuda, SplitsOfAwkwardShapes) {
  for (const AttentionCase& c :
       {AttentionCase{kBFloat16, kBFloat16, 128, 4, 1, 32, {{1, 15}, {0, 0}, {1, 16}, {1, 17}}},
        AttentionCase{kFloat16, kFloat32, 80, 6, 2, 48, {{1, 100}, {3, 131}}},
        AttentionCase{kFloat8, kBFloat16, 65, 20, 1, 16, {{2, 33}}, 0, 0, 0.5f, 2},
        AttentionCase{kBFloat16, kFloat32, 192, 2, 2, 16, {{1, 65}}},
        AttentionCase{kFloat8, kFloat16, 256, 3, 1, 16, {{1, 90}}},
        AttentionCase{kFloat32, kFloat32, 100, 5, 1, 16, {{1, 90}, {7, 8}}},
        AttentionCase{kFloat32, kFloat32, 256, 2, 1, 16, {{1, 20}}}}) {
    EXPECT_LT(split_error(c, 1, 64), 1) << c.name();
  }
}

TEST(AttentionCuda, SplitsWithWindowsAndSoftcap) {
  for (const int32_t cache : {kFloat32, kBFloat16}) {
    for (const int32_t window : {1, 5, 64, 100}) {
      const AttentionCase c = {cache,
                               kFloat32,
                               64,
                               4,
                               2,
                               16,
                               {{1, 1}, {1, 150}, {4, 200}},
                               window,
                               window % 2 ? 0.0f : 2.0f};
      EXPECT_LT(split_error(c, 1, 64), 1) << c.name();
    }
  }
}

TEST(AttentionCuda, PrefillOfEveryDtype) {
  for (const auto& [cache, dtype] : kDtypes) {
    if (cache == kFloat32) continue;
    const AttentionCase c = {cache, dtype, 64, 4, 2, 16, {{37, 37}, {1, 90}, {5, 140}}};
    EXPECT_LT(prefill_error(c, 1), 1) << c.name();
  }
}

TEST(AttentionCuda, PrefillOfAwkwardShapes) {
  for (const AttentionCase& c :
       {AttentionCase{kBFloat16, kBFloat16, 128, 3, 1, 32, {{64, 64}, {0, 0}, {65, 200}}},
        AttentionCase{kFloat16, kFloat32, 80, 2, 2, 48, {{63, 63}, {1, 65}}},
        AttentionCase{kFloat8, kBFloat16, 65, 10, 1, 16, {{9, 33}}, 0, 0, 0.5f, 2},
        AttentionCase{kBFloat16, kFloat32, 192, 1, 1, 16, {{40, 71}}},
        AttentionCase{kFloat8, kFloat16, 256, 2, 1, 16, {{33, 50}}}}) {
    EXPECT_LT(prefill_error(c, 1), 1) << c.name();
  }
}

TEST(AttentionCuda, PrefillWithWindowsAndSoftcap) {
  for (const int32_t window : {1, 30, 64, 130}) {
    const AttentionCase c = {
        kBFloat16, kFloat32, 64, 2, 1, 16, {{70, 250}, {20, 20}}, window, window % 4 ? 2.0f : 0.0f};
    EXPECT_LT(prefill_error(c, 1), 1) << c.name();
  }
}

TEST(AttentionCuda, SeedsOfThreadOrder) {
  const AttentionCase decode = {kBFloat16, kBFloat16, 64, 4, 1, 16, {{1, 140}}};
  const AttentionCase prompt = {kFloat16, kFloat16, 64, 2, 1, 16, {{40, 140}}};
  for (unsigned seed = 0; seed < 9; ++seed) {
    EXPECT_LT(split_error(decode, seed, 128), 1) << seed;
    EXPECT_LT(prefill_error(prompt, seed), 1) << seed;
  }
}

// The same split size gives the same bits, whatever else the step holds.
TEST(AttentionCuda, ARowDoesNotDependOnTheBatch) {
  const AttentionCase alone = {kBFloat16, kFloat32, 64, 4, 1, 16, {{1, 150}}};
  AttentionCase batch = alone;
  batch.requests = {{1, 150}, {1, 300}};
  AttentionStep one(alone, 3), two(batch, 3);
  // The same numbers in the first request.
  const int64_t row = alone.num_heads * alone.head_dim;
  for (int64_t i = 0; i < row; ++i) two.q.set(i, one.q[i]);
  for (int64_t p = 0; p < 150; ++p) {
    for (int64_t d = 0; d < 64; ++d) {
      const auto at = static_cast<size_t>(p);
      two.k_cache.set(two.offsets[0][at] + d, one.k_cache[one.offsets[0][at] + d]);
      two.v_cache.set(two.offsets[0][at] + d, one.v_cache[one.offsets[0][at] + d]);
    }
  }
  for (AttentionStep* step : {&one, &two}) {
    const AttentionTask task = step->task();
    const size_t bytes = attention_workspace_bytes(task.num_tokens, 4, 64, 320, 64);
    const DeviceTensor workspace(static_cast<int64_t>(bytes / 4), kFloat32);
    ASSERT_EQ(attend_split(task, 1, 320, 64, workspace.data(), bytes, nullptr), 0);
  }
  for (int64_t i = 0; i < row; ++i) EXPECT_EQ(one.out[i], two.out[i]);
}

// A request whose own numbers are not finite says so, and no other does.
TEST(AttentionCuda, NaNStaysWithItsRequest) {
  for (const bool by_split : {true, false}) {
    AttentionStep step({kBFloat16, kFloat32, 64, 2, 1, 16, {{2, 40}, {2, 40}}}, 1);
    step.k_cache.set(step.offsets[0][39] + 5, NAN);
    if (by_split) {
      ASSERT_EQ(attend_split(step.task(), 2, 40, 64, nullptr, 0, nullptr), 0);
    } else {
      ASSERT_EQ(attend_prefill(step.task(), nullptr), 0);
    }
    const int64_t row = 2 * 64;
    EXPECT_FALSE(std::isnan(step.out[0]));  // does not see position 39
    EXPECT_TRUE(std::isnan(step.out[row]));
    EXPECT_FALSE(std::isnan(step.out[2 * row]));
    EXPECT_FALSE(std::isnan(step.out[3 * row]));
  }
}

// Without one of its barriers, or one wait for copies, a kernel gives other numbers.
TEST(AttentionCuda, FindsRemovedBarriersAndWaits) {
  const AttentionCase decode = {kBFloat16, kBFloat16, 64, 4, 1, 16, {{1, 140}}};
  const AttentionCase plain = {kFloat32, kFloat32, 64, 4, 1, 16, {{1, 140}}};
  const AttentionCase prompt = {kBFloat16, kBFloat16, 64, 2, 1, 16, {{40, 260}}};
  const auto is_found = [](const emulation::PlantedFault& fault, const auto& error) {
    emulation::plant(fault);
    bool found = false;
    for (unsigned seed = 0; seed < 6; ++seed) found = found || error(seed) > 1;
    emulation::plant({});
    return found;
  };
  for (int barrier = 0; barrier < 2; ++barrier) {
    EXPECT_TRUE(is_found({.barrier = barrier}, [&](unsigned s) {
      return split_error(decode, s, 256);
    })) << barrier;
  }
  EXPECT_TRUE(is_found({.barrier = 0}, [&](unsigned s) { return split_error(plain, s, 256); }));
  // The first barrier is for the tile's offsets; then three a tile.
  for (int barrier = 0; barrier < 8; ++barrier) {
    const auto error = [&](unsigned s) { return prefill_error(prompt, s); };
#if defined(__SANITIZE_ADDRESS__)
    if (barrier == 0) {
      EXPECT_DEATH(is_found({.barrier = barrier}, error), "heap-buffer-overflow");
      continue;
    }
#endif
    EXPECT_TRUE(is_found({.barrier = barrier}, error)) << barrier;
  }
  for (int wait = 0; wait < 4; ++wait) {
    EXPECT_TRUE(is_found({.copy_wait = wait}, [&](unsigned s) { return prefill_error(prompt, s); }))
        << wait;
  }
}

TEST(AttentionCuda, RefusesWhatItCannotDo) {
  const AttentionStep step({kBFloat16, kFloat32, 64, 4, 2, 16, {{1, 200}}}, 1);
  const auto refuses = [&](const auto& change, const char* reason) {
    AttentionTask task = step.task();
    change(task);
    EXPECT_EQ(attend_prefill(task, nullptr), PINFER_OPS_INVALID_ARGUMENT);
    EXPECT_STREQ(pinfer_ops_last_error(), reason);
  };
  refuses([](AttentionTask& t) { t.num_heads = 3; },
          "attend_prefill: num_heads must be a multiple of num_kv_heads, got 3 and 2");
  refuses([](AttentionTask& t) { t.cache.head_dim = 257; },
          "attend_prefill: head_dim must be 1 to 256, got 257");
  refuses([](AttentionTask& t) { t.cache.block_size = 8; },
          "attend_prefill: block_size must be a multiple of 16 up to 256, got 8");
  refuses([](AttentionTask& t) { t.dtype = PINFER_FLOAT16; },
          "attend_prefill: a bfloat16 cache does not go with float16 rows");
  refuses([](AttentionTask& t) { t.cache.dtype = PINFER_FLOAT32; },
          "attend_prefill: tensor cores do not take a float32 cache; use attend_split");
  EXPECT_EQ(attend_split(step.task(), 1, 200, 64, nullptr, 0, nullptr),
            PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_STREQ(pinfer_ops_last_error(), "attend_split: needs a workspace of 12672 bytes, got 0");
  EXPECT_EQ(attend_split(step.task(), 1, 200, 65, nullptr, 0, nullptr),
            PINFER_OPS_INVALID_ARGUMENT);
}

TEST(AttentionCuda, SplitSizesFillTheProcessors) {
  EXPECT_EQ(choose_split_size(1, 8, 2048, 132), 128);
  EXPECT_EQ(choose_split_size(1, 8, 131072, 132), 704);
  EXPECT_EQ(choose_split_size(16, 8, 8192, 132), 512);
  EXPECT_EQ(choose_split_size(64, 8, 2048, 132), 512);
  EXPECT_EQ(choose_split_size(64, 8, 131072, 132), 32768);
  EXPECT_EQ(choose_split_size(1, 8, 1, 132), 128);
}

// Every dtype with every head size; heads and block sizes take turns.
TEST(AttentionCudaSlow, Matrix) {
  constexpr std::pair<int, int> kHeads[] = {{1, 1}, {4, 1}, {6, 2}, {17, 1}};
  constexpr int kBlockSizes[] = {16, 48, 128};
  unsigned turn = 0;
  for (const auto& [cache, dtype] : kDtypes) {
    for (const int64_t head_dim : {64, 72, 80, 96, 100, 112, 128, 160, 192, 256}) {
      for (int i = 0; i < 2; ++i) {
        const auto [heads, kv_heads] = kHeads[turn % 4];
        const int block = kBlockSizes[turn % 3];
        const AttentionCase c = {cache,
                                 dtype,
                                 head_dim,
                                 heads,
                                 kv_heads,
                                 block,
                                 {{1, 1}, {1, block - 1}, {7, block}, {1, block + 1}, {17, 130}},
                                 static_cast<int32_t>(turn % 5 * 17),
                                 turn % 2 == 0 ? 0.0f : 1.5f};
        EXPECT_LT(split_error(c, turn, 64), 1) << c.name();
        if (cache != kFloat32) {
          EXPECT_LT(prefill_error(c, turn), 1) << c.name();
        }
        ++turn;
      }
    }
  }
}

}  // namespace
}  // namespace pinfer::cuda
