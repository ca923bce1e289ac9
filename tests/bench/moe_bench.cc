// Speed of a mixture of experts, with the same weights read by linear beside it: the sum of what
// its experts' products take one by one is what the op should stay near.
//
//   moe_bench [--benchmark_filter=...]      counters: GB/s (of the experts that have tokens)
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "csrc/kernels/quantized_weight.h"
#include "csrc/ops.h"
#include "csrc/threads/cpu_count.h"
#include "csrc/threads/thread_pool.h"

namespace {

using pinfer::ThreadPool;

std::vector<float> random_floats(int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = distribution(generator);
  return values;
}

int64_t packed_bytes(int32_t dtype, int64_t group_size, int64_t n, int64_t k) {
  const int64_t panels = (n + 15) / 16;
  switch (dtype) {
    case PINFER_FLOAT32:
      return panels * k * 64;
    case PINFER_BFLOAT16:
      return panels * ((k + 1) / 2) * 64;
    case PINFER_INT8:
      return panels * pinfer::Int8Layout::panel_bytes(k);
    default:
      return panels * pinfer::Int4Layout::panel_bytes(k, group_size);
  }
}

// Small numbers of any format: every 32-bit word is 1/32 as float32, or a pair of small bfloat16,
// or small scales, or bytes.
std::vector<uint8_t> weights(int64_t bytes) {
  std::vector<uint8_t> memory(static_cast<size_t>(bytes));
  constexpr uint16_t kSmall = 0x3d00;
  for (size_t i = 0; i + 1 < memory.size(); i += 2) std::memcpy(&memory[i], &kSmall, 2);
  return memory;
}

struct Case {
  int64_t hidden, intermediate, experts, per_token, tokens, group_size;
  int32_t dtype;
  int64_t gate_up_bytes, down_bytes;  // of an expert
  std::vector<uint8_t> gate_up, down;
  std::vector<float> x, logits, out;

  explicit Case(const benchmark::State& state)
      : hidden(state.range(0)),
        intermediate(state.range(1)),
        experts(state.range(2)),
        per_token(state.range(3)),
        tokens(state.range(4)),
        group_size(state.range(5) == PINFER_INT4 ? 128 : 0),
        dtype(static_cast<int32_t>(state.range(5))),
        gate_up_bytes(packed_bytes(dtype, group_size, 2 * intermediate, hidden)),
        down_bytes(packed_bytes(dtype, group_size, hidden, intermediate)),
        gate_up(weights(gate_up_bytes * experts)),
        down(weights(down_bytes * experts)),
        x(random_floats(tokens * hidden, 1)),
        logits(random_floats(kVariants * tokens * experts, 2)),
        out(static_cast<size_t>(tokens * hidden)) {
    for (float& value : x) value = std::fabs(value);  // else gates may all be closed
  }

  // Other experts from call to call, so that few of them are found in the caches.
  static constexpr int64_t kVariants = 8;
  const float* logits_of(int64_t variant) const {
    return logits.data() + variant % kVariants * tokens * experts;
  }

  int32_t run(int64_t variant) {
    return pinfer_moe(x.data(), logits_of(variant), gate_up.data(), down.data(), dtype, group_size,
                      tokens, hidden, intermediate, experts, per_token, 1, PINFER_SILU, out.data());
  }

  // How many rows each expert gets.
  std::vector<int64_t> rows_of_experts(int64_t variant) const {
    std::vector<int64_t> rows(static_cast<size_t>(experts));
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = logits_of(variant) + t * experts;
      std::vector<std::pair<float, size_t>> order;
      for (size_t e = 0; e < rows.size(); ++e) order.push_back({-row[e], e});
      std::sort(order.begin(), order.end());
      for (int64_t i = 0; i < per_token; ++i) ++rows[order[static_cast<size_t>(i)].second];
    }
    return rows;
  }

  // All experts are alike and their weights sum to 1: the output is any one expert's.
  bool is_right() {
    if (run(0) != 0) return false;
    std::vector<float> gate_up_out(static_cast<size_t>(2 * intermediate));
    std::vector<float> expected(static_cast<size_t>(hidden));
    linear(1, gate_up.data(), hidden, 2 * intermediate, x.data(), gate_up_out.data());
    for (int64_t i = 0; i < intermediate; ++i) {
      float& gate = gate_up_out[static_cast<size_t>(i)];
      gate = gate / (1 + std::exp(-gate)) * gate_up_out[static_cast<size_t>(intermediate + i)];
    }
    linear(1, down.data(), intermediate, hidden, gate_up_out.data(), expected.data());
    float largest = 0, error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      error = std::max(error, std::fabs(out[i] - expected[i]));
    }
    return largest > 0 && error <= 0.02f * largest;
  }

  void linear(int64_t rows, const uint8_t* weight, int64_t k, int64_t n, const float* in,
              float* result) const {
    pinfer_linear(in, rows, k, weight, dtype, group_size, n, result);
  }
};

void count_bytes(benchmark::State& state, const Case& c) {
  int64_t bytes = 0;
  for (int64_t variant = 0; variant < Case::kVariants; ++variant) {
    for (int64_t rows : c.rows_of_experts(variant)) {
      if (rows > 0) bytes += c.gate_up_bytes + c.down_bytes;
    }
  }
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(bytes) / Case::kVariants,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void bm_moe(benchmark::State& state) {
  ThreadPool pool(pinfer::default_thread_count().count);
  ThreadPool::Scope scope(&pool);
  Case c(state);
  if (!c.is_right()) {
    state.SkipWithError("wrong result");
    return;
  }
  int64_t i = 0;
  for (auto _ : state) (void)c.run(++i);
  count_bytes(state, c);
}

// The products alone, expert after expert.
void bm_linear_of_experts(benchmark::State& state) {
  ThreadPool pool(pinfer::default_thread_count().count);
  ThreadPool::Scope scope(&pool);
  Case c(state);
  std::vector<std::vector<int64_t>> rows;
  for (int64_t variant = 0; variant < Case::kVariants; ++variant) {
    rows.push_back(c.rows_of_experts(variant));
  }
  const std::vector<float> in = random_floats(c.tokens * std::max(c.hidden, c.intermediate), 3);
  std::vector<float> out(static_cast<size_t>(c.tokens * std::max(c.hidden, 2 * c.intermediate)));
  size_t i = 0;
  for (auto _ : state) {
    const std::vector<int64_t>& counts = rows[++i % rows.size()];
    for (size_t e = 0; e < counts.size(); ++e) {
      if (counts[e] == 0) continue;
      const auto expert = static_cast<int64_t>(e);
      c.linear(counts[e], c.gate_up.data() + expert * c.gate_up_bytes, c.hidden, 2 * c.intermediate,
               in.data(), out.data());
      c.linear(counts[e], c.down.data() + expert * c.down_bytes, c.intermediate, c.hidden,
               in.data(), out.data());
    }
  }
  count_bytes(state, c);
}

// On a machine with other work the best of many short runs is what tells versions apart.
double lowest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// Few small experts of many (64 of 8), and few large ones (8 of 2).
void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "intermediate", "experts", "per_token", "T", "dtype"});
  for (int64_t dtype : {PINFER_FLOAT32, PINFER_BFLOAT16, PINFER_INT8, PINFER_INT4}) {
    for (int64_t num_tokens : {1, 8, 64, 512}) {
      bench->Args({1024, 512, 64, 8, num_tokens, dtype});
      if (dtype != PINFER_FLOAT32) bench->Args({1024, 3584, 8, 2, num_tokens, dtype});
    }
  }
  bench->UseRealTime()
      ->MinTime(0.002)
      ->Repetitions(60)
      ->ReportAggregatesOnly()
      ->ComputeStatistics("min", lowest)
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(bm_moe)->Apply(shapes);
BENCHMARK(bm_linear_of_experts)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
