// The C functions: division of work over threads, checks and their messages.
#include "csrc/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "csrc/kernels/cpu_features.h"
#include "csrc/threads/thread_pool.h"
#include "packing.h"

extern "C" int32_t pinfer_test_linear_from_c(const float* x, const float* weight, float* out);

namespace pinfer {
namespace {

// A step of three requests: a long prefill, a decode over a long context, a short one.
struct Step {
  static constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 32, kBlockSize = 16,
                           kMaxBlocks = 70;
  int32_t dtype;
  int64_t num_tokens = 0, num_blocks = 0;
  std::vector<int32_t> seq_lens = {600, 1100, 3};
  std::vector<int32_t> query_start_loc = {0, 590, 591, 594};
  std::vector<int64_t> slot_mapping;
  std::vector<int32_t> block_table;
  std::vector<float> q, k, v;
  std::vector<uint8_t> k_cache, v_cache;

  explicit Step(int32_t dtype_in) : dtype(dtype_in) {
    num_tokens = query_start_loc.back();
    num_blocks = 3 * kMaxBlocks + 1;
    block_table.resize(3 * kMaxBlocks);
    for (size_t i = 0; i < block_table.size(); ++i) {
      block_table[i] = static_cast<int32_t>(num_blocks - 1 - static_cast<int64_t>(i));
    }
    const int64_t rows = kKvHeads * kHeadDim;
    q = random_floats(num_tokens * kHeads * kHeadDim, 1);
    k = random_floats(num_tokens * rows, 2);
    v = random_floats(num_tokens * rows, 3);
    for (size_t s = 0; s < 3; ++s) {
      const int32_t count = query_start_loc[s + 1] - query_start_loc[s];
      for (int32_t i = 0; i < count; ++i) {
        slot_mapping.push_back(slot(s, seq_lens[s] - count + i));
      }
    }
    const auto bytes =
        static_cast<size_t>(num_blocks * kBlockSize * rows) * (dtype == PINFER_FLOAT32 ? 4 : 2);
    k_cache.assign(bytes, 0xff);  // NaN
    v_cache = k_cache;
    write_history();
  }

  int64_t slot(size_t s, int32_t position) const {
    return block_table[s * kMaxBlocks + static_cast<size_t>(position) / kBlockSize] * kBlockSize +
           position % kBlockSize;
  }

  // Contexts before this step, written by a step of their own.
  void write_history() {
    std::vector<int64_t> slots;
    std::vector<int32_t> lens, starts = {0};
    for (size_t s = 0; s < 3; ++s) {
      const int32_t count = seq_lens[s] - (query_start_loc[s + 1] - query_start_loc[s]);
      for (int32_t i = 0; i < count; ++i) slots.push_back(slot(s, i));
      lens.push_back(count);
      starts.push_back(starts.back() + count);
    }
    const auto tokens = static_cast<int64_t>(slots.size());
    const auto history = random_floats(tokens * kHeads * kHeadDim, 4);
    std::vector<float> out(history.size());
    ASSERT_EQ(
        pinfer_paged_attention(history.data(), history.data(), history.data(), k_cache.data(),
                               v_cache.data(), dtype, slots.data(), block_table.data(), lens.data(),
                               starts.data(), 0.2, 0, 0, tokens, 3, kHeads, kKvHeads, kHeadDim,
                               num_blocks, kBlockSize, kMaxBlocks, out.data()),
        0)
        << pinfer_ops_last_error();
  }

  int32_t run(std::vector<float>* out, int32_t window = 0, double scale = 0.2) {
    out->assign(q.size(), NAN);
    return pinfer_paged_attention(q.data(), k.data(), v.data(), k_cache.data(), v_cache.data(),
                                  dtype, slot_mapping.data(), block_table.data(), seq_lens.data(),
                                  query_start_loc.data(), scale, window, 0, num_tokens,
                                  static_cast<int64_t>(seq_lens.size()), kHeads, kKvHeads, kHeadDim,
                                  num_blocks, kBlockSize, kMaxBlocks, out->data());
  }
};

TEST(OpsTest, CallableFromC) {
  float x[1] = {3}, out[1] = {0};
  float weight[16] = {2};
  ASSERT_EQ(pinfer_test_linear_from_c(x, weight, out), 0);
  EXPECT_EQ(out[0], 6);
}

TEST(OpsTest, AttentionIsTheSameForAnyNumberOfThreads) {
  for (int32_t dtype : {PINFER_FLOAT32, PINFER_BFLOAT16}) {
    for (int32_t window : {0, 700}) {
      Step step(dtype);
      std::vector<float> serial;
      ASSERT_EQ(step.run(&serial, window), 0) << pinfer_ops_last_error();
      for (float value : serial) ASSERT_TRUE(std::isfinite(value));
      for (int threads : {2, 3, 5, 40}) {  // 40: few chunks per thread, divided by context too
        ThreadPool pool(threads);
        ThreadPool::Scope scope(&pool);
        std::vector<float> out;
        ASSERT_EQ(step.run(&out, window), 0) << pinfer_ops_last_error();
        EXPECT_EQ(std::memcmp(serial.data(), out.data(), out.size() * 4), 0)
            << threads << " threads, window " << window;
      }
    }
  }
}

TEST(OpsTest, LinearIsTheSameForAnyNumberOfThreadsAndRows) {
  constexpr int64_t kRows = 200, kK = 301, kN = 333;
  const auto x = random_floats(kRows * kK, 1), weight = random_floats(kN * kK, 2);
  for (int32_t dtype : {PINFER_FLOAT32, PINFER_BFLOAT16}) {
    const auto packed =
        dtype == PINFER_FLOAT32 ? pack_float32(weight, kN, kK) : pack_bfloat16(weight, kN, kK);
    std::vector<float> alone(kRows * kN);
    for (int64_t row = 0; row < kRows; ++row) {
      ASSERT_EQ(pinfer_linear(x.data() + row * kK, 1, kK, packed.data(), dtype, 0, kN,
                              alone.data() + row * kN),
                0);
    }
    for (int threads : {1, 2, 3, 16}) {
      ThreadPool pool(threads);
      ThreadPool::Scope scope(&pool);
      std::vector<float> out(kRows * kN);
      ASSERT_EQ(pinfer_linear(x.data(), kRows, kK, packed.data(), dtype, 0, kN, out.data()), 0);
      EXPECT_EQ(std::memcmp(alone.data(), out.data(), out.size() * 4), 0) << threads;
    }
  }
}

TEST(OpsTest, ThreadsOfTheirOwnRunAtOnce) {
  constexpr int64_t kRows = 4, kK = 64, kN = 64;
  const auto x = random_floats(kRows * kK, 1), weight = random_floats(kN * kK, 2);
  const auto packed = pack_bfloat16(weight, kN, kK);
  std::vector<float> expected(kRows * kN);
  ASSERT_EQ(
      pinfer_linear(x.data(), kRows, kK, packed.data(), PINFER_BFLOAT16, 0, kN, expected.data()),
      0);
  std::vector<std::thread> threads;
  std::vector<int> wrong(3);
  ThreadPool pool(2);
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      ThreadPool::Scope scope(&pool);
      std::vector<float> out(kRows * kN);
      for (int round = 0; round < 100; ++round) {
        if (pinfer_linear(x.data(), kRows, kK, packed.data(), PINFER_BFLOAT16, 0, kN, out.data()) !=
                0 ||
            out != expected) {
          ++wrong[i];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(3));
}

TEST(OpsTest, SlotMinusOneIsNotWritten) {
  Step step(PINFER_FLOAT32);
  const auto before = step.k_cache;
  step.slot_mapping.assign(step.slot_mapping.size(), -1);
  std::vector<float> out;
  ASSERT_EQ(step.run(&out), 0);
  EXPECT_EQ(step.k_cache, before);
}

TEST(OpsTest, EmptyStep) {
  const int32_t start = 0;
  EXPECT_EQ(
      pinfer_paged_attention(nullptr, nullptr, nullptr, nullptr, nullptr, PINFER_FLOAT32, nullptr,
                             nullptr, nullptr, &start, 1, 0, 0, 0, 0, 1, 1, 8, 0, 16, 0, nullptr),
      0);
  EXPECT_EQ(pinfer_linear(nullptr, 0, 8, nullptr, PINFER_FLOAT32, 0, 8, nullptr), 0);
}

void expect_error(int32_t code, const std::string& part) {
  EXPECT_EQ(code, PINFER_OPS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pinfer_ops_last_error()).find(part), std::string::npos)
      << pinfer_ops_last_error();
}

TEST(OpsTest, LinearChecks) {
  float x[4] = {}, out[16] = {};
  expect_error(pinfer_linear(x, -1, 4, x, PINFER_FLOAT32, 0, 1, out), "num_tokens");
  expect_error(pinfer_linear(x, 1, 0, x, PINFER_FLOAT32, 0, 1, out), "in_features");
  expect_error(pinfer_linear(x, 1, 4, x, PINFER_FLOAT32, 0, 0, out), "out_features");
  expect_error(pinfer_linear(x, 1, 4, x, 5, 0, 1, out), "dtype must be float32 (6), bfloat16 (15)");
  expect_error(pinfer_linear(x, 1, 4, x, PINFER_INT4, 0, 1, out), "multiple of 32");
  expect_error(pinfer_linear(x, 1, 4, x, PINFER_INT8, 32, 1, out), "group_size must be 0");
  expect_error(pinfer_linear(nullptr, 1, 4, x, PINFER_FLOAT32, 0, 1, out), "null");
}

TEST(OpsTest, EmbeddingChecks) {
  const float weight[32] = {};
  float out[2];
  const int32_t ids[] = {0, 16};
  expect_error(pinfer_embedding(ids, 2, weight, PINFER_FLOAT32, 0, 16, 1, out),
               "token_ids[1] must be in [0, 16), got 16");
  const int32_t negative[] = {-1};
  expect_error(pinfer_embedding(negative, 1, weight, PINFER_FLOAT32, 0, 16, 1, out), "got -1");
  expect_error(pinfer_embedding(ids, 1, weight, 5, 0, 16, 1, out), "dtype");
  expect_error(pinfer_embedding(ids, 1, weight, PINFER_INT4, 24, 16, 1, out), "group_size");
}

TEST(OpsTest, AttentionChecks) {
  const std::vector<std::pair<std::function<void(Step*)>, std::string>> cases = {
      {[](Step* s) { s->dtype = 5; },
       "cache dtype must be float32 (6), bfloat16 (15) or int8 (1), got 5"},
      {[](Step* s) { s->slot_mapping[7] = s->num_blocks * 16; }, "slot_mapping[7]"},
      {[](Step* s) { s->slot_mapping[0] = -2; }, "slot_mapping[0]"},
      {[](Step* s) { s->block_table[Step::kMaxBlocks + 2] = -1; }, "block_table[1, 2]"},
      {[](Step* s) { s->block_table[3] = static_cast<int32_t>(s->num_blocks); },
       "block_table[0, 3] must be in [0, 211), got 211"},
      {[](Step* s) { s->seq_lens[1] = 70 * 16 + 1; }, "needs 71 blocks, block_table has 70"},
      {[](Step* s) { s->seq_lens[0] = 589; },
       "seq_lens[0] must be at least the request's 590 rows"},
      {[](Step* s) { s->query_start_loc[0] = 1; }, "query_start_loc must go from 0"},
      {[](Step* s) { s->query_start_loc[3] = 593; }, "query_start_loc must go from 0"},
      {[](Step* s) { s->query_start_loc[1] = 592; }, "query_start_loc must not decrease"},
  };
  for (const auto& [damage, part] : cases) {
    Step step(PINFER_FLOAT32);
    damage(&step);
    const auto before = step.k_cache;
    std::vector<float> out;
    expect_error(step.run(&out), part);
    EXPECT_EQ(before, step.k_cache) << "nothing is written on an error";
  }
  // Blocks beyond the context are not looked at.
  Step step(PINFER_FLOAT32);
  step.block_table[Step::kMaxBlocks - 1] = -5;
  std::vector<float> out;
  EXPECT_EQ(step.run(&out), 0) << pinfer_ops_last_error();
}

TEST(OpsTest, AttentionSizeChecks) {
  const int32_t start = 0;
  const auto sizes = [&](int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t block_size,
                         int32_t dtype, int32_t window, double softcap) {
    return pinfer_paged_attention(nullptr, nullptr, nullptr, nullptr, nullptr, dtype, nullptr,
                                  nullptr, nullptr, &start, 1, window, softcap, 0, 0, heads,
                                  kv_heads, head_dim, 0, block_size, 0, nullptr);
  };
  expect_error(sizes(7, 2, 8, 16, PINFER_FLOAT32, 0, 0), "multiple of num_kv_heads, got 7 and 2");
  expect_error(sizes(2, 0, 8, 16, PINFER_FLOAT32, 0, 0), "num_kv_heads");
  expect_error(sizes(2, 2, 257, 16, PINFER_FLOAT32, 0, 0), "head_dim must be 1 to 256");
  expect_error(sizes(2, 2, 7, 16, PINFER_BFLOAT16, 0, 0), "head_dim must be even");
  expect_error(sizes(2, 2, 8, 8, PINFER_FLOAT32, 0, 0), "block_size must be a multiple of 16");
  expect_error(sizes(2, 2, 8, 272, PINFER_FLOAT32, 0, 0), "up to 256");
  expect_error(sizes(2, 2, 8, 16, PINFER_FLOAT32, -1, 0), "sliding_window");
  expect_error(sizes(2, 2, 8, 16, PINFER_FLOAT32, 0, -1), "logit_softcap");
}

TEST(OpsTest, ErrorsAreThreadLocalAndCleared) {
  float x[16] = {}, out[1];
  expect_error(pinfer_linear(x, -1, 1, x, PINFER_FLOAT32, 0, 1, out), "num_tokens");
  std::thread([] { EXPECT_STREQ(pinfer_ops_last_error(), ""); }).join();
  EXPECT_EQ(pinfer_linear(x, 1, 1, x, PINFER_FLOAT32, 0, 1, out), 0);
  EXPECT_STREQ(pinfer_ops_last_error(), "");
}

TEST(OpsTest, RotaryEmbedding) {
  const std::vector<int32_t> positions = {0, 1, 131071};
  const std::vector<float> inv_freq = {1.0f, 0.5f, 1e-4f};
  std::vector<float> cosines(9), sines(9);
  ASSERT_EQ(pinfer_rotary_embedding(positions.data(), 3, inv_freq.data(), 3, 1.5, cosines.data(),
                                    sines.data()),
            0);
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < 3; ++i) {
      const float angle = static_cast<float>(positions[t]) * inv_freq[i];
      EXPECT_NEAR(cosines[t * 3 + i], 1.5 * std::cos(static_cast<double>(angle)), 2e-7);
      EXPECT_NEAR(sines[t * 3 + i], 1.5 * std::sin(static_cast<double>(angle)), 2e-7);
    }
  }
  expect_error(pinfer_rotary_embedding(positions.data(), 3, inv_freq.data(), 0, 1, cosines.data(),
                                       sines.data()),
               "num_freqs");
}

TEST(SettingsTest, DefaultPool) {
  EXPECT_EQ(pinfer_get_num_threads(), 1);
  ASSERT_EQ(pinfer_set_num_threads(3), 0);
  EXPECT_EQ(pinfer_get_num_threads(), 3);
  ThreadPool own(2);
  {
    ThreadPool::Scope scope(&own);
    EXPECT_EQ(pinfer_get_num_threads(), 2);
  }
  ASSERT_EQ(pinfer_set_num_threads(0), 0);
  EXPECT_GE(pinfer_get_num_threads(), 1);
  expect_error(pinfer_set_num_threads(-1), "num_threads must be 0 (automatic) to 1024, got -1");
  ASSERT_EQ(pinfer_set_num_threads(1), 0);
}

TEST(SettingsTest, ForcedIsa) {
  const std::string best = pinfer_get_isa();
  ASSERT_EQ(pinfer_force_isa("portable"), 0);
  EXPECT_STREQ(pinfer_get_isa(), "portable");
  expect_error(pinfer_force_isa("sse9"), "got 'sse9'");
  EXPECT_STREQ(pinfer_get_isa(), "portable");
  ASSERT_EQ(pinfer_force_isa(""), 0);
  EXPECT_EQ(pinfer_get_isa(), best);
  for (Isa isa : {Isa::PORTABLE, Isa::AVX2, Isa::AVX2_VNNI, Isa::AVX512, Isa::AVX512_VNNI,
                  Isa::AVX512_BF16}) {
    EXPECT_EQ(isa_from_name(isa_name(isa)), isa);
    if (!is_supported(isa)) expect_error(pinfer_force_isa(isa_name(isa)), "does not support");
  }
}

}  // namespace
}  // namespace pinfer
