// The CUDA kernels against the CPU's op: the same step through pinfer_paged_attention, and through
// the cache write and both attention kernels. Arguments mean the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"
#include "csrc/ops.h"
#include "cuda_emulation.h"
#include "device_tensor.h"
#include "device_weight.h"

namespace pinfer::cuda {
namespace {

constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 64, kBlockSize = 16, kMaxBlocks = 12;
constexpr int64_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;

struct Step {
  int32_t dtype;  // of the cache
  int32_t window;
  float softcap;
  std::vector<int32_t> block_table;
  DeviceTensor cpu_k, cpu_v, k, v;

  Step(int32_t dtype_in, int32_t window_in, float softcap_in, int64_t num_requests)
      : dtype(dtype_in), window(window_in), softcap(softcap_in) {
    block_table.resize(static_cast<size_t>(num_requests * kMaxBlocks));
    std::iota(block_table.begin(), block_table.end(), 0);
    std::shuffle(block_table.begin(), block_table.end(), std::mt19937(1));
    const int64_t size = num_requests * kMaxBlocks * kBlockSize * kKv;
    for (DeviceTensor* cache : {&cpu_k, &cpu_v, &k, &v}) *cache = DeviceTensor(size, dtype);
  }

  // rows[s] more tokens of each request, up to lengths[s]; the largest difference of the results.
  double run(const std::vector<int32_t>& rows, const std::vector<int32_t>& lengths, unsigned seed) {
    std::vector<int32_t> start = {0};
    std::vector<int64_t> slots;
    for (size_t s = 0; s < rows.size(); ++s) {
      start.push_back(start.back() + rows[s]);
      for (int64_t p = lengths[s] - rows[s]; p < lengths[s]; ++p) {
        const int64_t block = block_table[s * kMaxBlocks + static_cast<size_t>(p / kBlockSize)];
        slots.push_back(block * kBlockSize + p % kBlockSize);
      }
    }
    const int64_t num_tokens = start.back();
    const auto num_requests = static_cast<int64_t>(rows.size());
    const int64_t num_blocks = num_requests * kMaxBlocks;
    const DeviceTensor q(random_numbers(num_tokens * kQ, seed), PINFER_FLOAT32);
    const DeviceTensor new_k(random_numbers(num_tokens * kKv, seed + 1), PINFER_FLOAT32);
    const DeviceTensor new_v(random_numbers(num_tokens * kKv, seed + 2), PINFER_FLOAT32);
    std::vector<float> expected(static_cast<size_t>(num_tokens * kQ));
    EXPECT_EQ(pinfer_paged_attention(
                  static_cast<const float*>(q.data()), static_cast<const float*>(new_k.data()),
                  static_cast<const float*>(new_v.data()), cpu_k.data(), cpu_v.data(), dtype,
                  slots.data(), block_table.data(), lengths.data(), start.data(), 0.125, window,
                  softcap, num_tokens, num_requests, kHeads, kKvHeads, kHeadDim, num_blocks,
                  kBlockSize, kMaxBlocks, expected.data()),
              0)
        << pinfer_ops_last_error();

    RotaryCacheTask write = {};
    write.k = new_k.data();
    write.v = new_v.data();
    write.k_stride = write.v_stride = kKv;
    write.dtype = PINFER_FLOAT32;
    write.slot_mapping = slots.data();
    write.cache = {k.data(), v.data(), dtype, num_blocks, kBlockSize, kKvHeads, kHeadDim};
    write.num_tokens = num_tokens;
    write.num_heads = kHeads;
    EXPECT_EQ(write_rotary_cache(write, nullptr), 0) << pinfer_ops_last_error();

    DeviceTensor out(num_tokens * kQ, PINFER_FLOAT32);
    const AttentionTask task = {
        q.data(),       out.data(),   PINFER_FLOAT32, write.cache,  block_table.data(),
        lengths.data(), start.data(), num_tokens,     num_requests, kHeads,
        kMaxBlocks,     0.125f,       window,         softcap};
    const int64_t max_len = kMaxBlocks * kBlockSize;
    const size_t bytes = attention_workspace_bytes(num_tokens, kHeads, kHeadDim, max_len, 64);
    const DeviceTensor workspace(static_cast<int64_t>(bytes / 4), PINFER_FLOAT32);
    EXPECT_EQ(attend_split(task, *std::max_element(rows.begin(), rows.end()), max_len, 64,
                           workspace.data(), bytes, nullptr),
              0)
        << pinfer_ops_last_error();
    double worst = difference(out, expected);
    if (dtype != PINFER_FLOAT32) {
      EXPECT_EQ(attend_prefill(task, nullptr), 0) << pinfer_ops_last_error();
      worst = std::max(worst, difference(out, expected));
    }
    return worst;
  }

 private:
  static double difference(const DeviceTensor& out, const std::vector<float>& expected) {
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = std::fabs(double{out[static_cast<int64_t>(i)]} - expected[i]);
      worst = std::max(worst, std::isnan(error) ? 1e9 : error);
    }
    return worst;
  }
};

TEST(CpuOp, GivesWhatTheKernelsGive) {
  for (const int32_t dtype : {PINFER_FLOAT32, PINFER_BFLOAT16}) {
    for (const int32_t window : {0, 20}) {
      for (const float softcap : {0.0f, 3.0f}) {
        // Rounded weights of the softmax: 2^-9 of numbers of the size of v.
        const double allowed = dtype == PINFER_FLOAT32 ? 2e-6 : 2e-2;
        Step step(dtype, window, softcap, 3);
        EXPECT_LT(step.run({40, 1, 17}, {40, 1, 17}, 1), allowed);
        EXPECT_LT(step.run({1, 50, 0}, {41, 51, 17}, 2), allowed);
        EXPECT_LT(step.run({1, 1, 1}, {42, 52, 18}, 3), allowed);
        EXPECT_LT(step.run({90, 1, 3}, {132, 53, 21}, 4), allowed);
        EXPECT_LT(step.run({1, 1, 1}, {133, 54, 22}, 5), allowed);
      }
    }
  }
}

}  // namespace
}  // namespace pinfer::cuda
