// Speed of the ops, with the machine's own limits beside them: read bandwidth and multiply-add
// peak. Every case first checks its result against a plain sum in double.
//
//   ops_bench [--benchmark_filter=...]      counters: GB/s (weights or cache), GFLOP/s
//   taskset -c 0 ops_bench                  one thread
// Read the "min" row for times and the "max" row for rates.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "csrc/kernels/cpu_features.h"
#include "csrc/ops.h"
#include "csrc/threads/cpu_count.h"
#include "csrc/threads/thread_pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using pinfer::ThreadPool;

std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> distribution(-1, 1);
  std::vector<float> values(n);
  for (float& value : values) value = distribution(generator);
  return values;
}

uint16_t to_bfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bfloat16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Packed weights, several copies so that a loop over them finds none in the caches.
struct Weights {
  int64_t k, n;
  int32_t dtype;
  int64_t copy_bytes, num_copies;
  std::vector<uint8_t> memory;

  Weights(int64_t k_in, int64_t n_in, int32_t dtype_in) : k(k_in), n(n_in), dtype(dtype_in) {
    constexpr int64_t kMoreThanCaches = 192 << 20;
    copy_bytes = (n + 15) / 16 * 16 * ((k + 1) / 2 * 2) * (dtype == PINFER_FLOAT32 ? 4 : 2);
    num_copies = std::max<int64_t>(1, kMoreThanCaches / copy_bytes);
    memory.resize(static_cast<size_t>(copy_bytes * num_copies));
    std::mt19937 generator(7);
    std::vector<uint8_t> one(static_cast<size_t>(copy_bytes));
    for (int64_t i = 0; i < copy_bytes / (dtype == PINFER_FLOAT32 ? 4 : 2); ++i) {
      const float value = static_cast<float>(static_cast<int32_t>(generator())) * 0x1p-31f;
      if (dtype == PINFER_FLOAT32) {
        std::memcpy(&one[static_cast<size_t>(i) * 4], &value, 4);
      } else {
        const uint16_t half = to_bfloat16(value);
        std::memcpy(&one[static_cast<size_t>(i) * 2], &half, 2);
      }
    }
    for (int64_t c = 0; c < num_copies; ++c) {
      std::memcpy(&memory[static_cast<size_t>(c * copy_bytes)], one.data(), one.size());
    }
  }

  const void* copy(int64_t i) const {
    return &memory[static_cast<size_t>(i % num_copies * copy_bytes)];
  }

  double at(int64_t row, int64_t column) const {
    const int64_t panel = row / 16, lane = row % 16;
    if (dtype == PINFER_FLOAT32) {
      float value;
      std::memcpy(&value, &memory[static_cast<size_t>((panel * k + column) * 16 + lane) * 4], 4);
      return value;
    }
    const int64_t pair = panel * ((k + 1) / 2) + column / 2;
    uint16_t half;
    std::memcpy(&half, &memory[static_cast<size_t>((pair * 16 + lane) * 2 + column % 2) * 2], 2);
    return from_bfloat16(half);
  }
};

bool linear_is_right(const Weights& weights, const std::vector<float>& x, int64_t num_tokens,
                     const std::vector<float>& out) {
  for (int64_t t : {int64_t{0}, num_tokens - 1}) {
    for (int64_t row : {int64_t{0}, weights.n / 2, weights.n - 1}) {
      double sum = 0;
      for (int64_t i = 0; i < weights.k; ++i) {
        const float value = x[static_cast<size_t>(t * weights.k + i)];
        const double rounded = weights.dtype == PINFER_FLOAT32
                                   ? static_cast<double>(value)
                                   : static_cast<double>(from_bfloat16(to_bfloat16(value)));
        sum += rounded * weights.at(row, i);
      }
      if (std::fabs(sum - out[static_cast<size_t>(t * weights.n + row)]) > 1e-2) return false;
    }
  }
  return true;
}

void bm_linear(benchmark::State& state) {
  const int64_t k = state.range(0), n = state.range(1), num_tokens = state.range(2);
  const auto dtype = static_cast<int32_t>(state.range(3));
  ThreadPool pool(pinfer::default_thread_count().count);
  ThreadPool::Scope scope(&pool);
  const Weights weights(k, n, dtype);
  const std::vector<float> x = random_floats(static_cast<size_t>(num_tokens * k), 1);
  std::vector<float> out(static_cast<size_t>(num_tokens * n));
  if (pinfer_linear(x.data(), num_tokens, k, weights.copy(0), dtype, 0, n, out.data()) != 0 ||
      !linear_is_right(weights, x, num_tokens, out)) {
    state.SkipWithError("wrong result");
    return;
  }
  int64_t i = 0;
  for (auto _ : state) {
    pinfer_linear(x.data(), num_tokens, k, weights.copy(++i), dtype, 0, n, out.data());
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(weights.copy_bytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(k * n * num_tokens),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

// On a machine with other work the best of many short runs is what tells kernels apart.
double lowest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double highest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

void best_of_many(benchmark::internal::Benchmark* bench) {
  bench->UseRealTime()
      ->MinTime(0.002)
      ->Repetitions(60)
      ->ReportAggregatesOnly()
      ->ComputeStatistics("min", lowest)
      ->ComputeStatistics("max", highest);
}

void linear_shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"K", "N", "T", "dtype"});
  const std::pair<int64_t, int64_t> shapes[] = {
      {576, 960}, {576, 576}, {576, 3072}, {1536, 576}, {576, 49152}};
  for (int64_t dtype : {PINFER_BFLOAT16, PINFER_FLOAT32}) {
    for (const auto& [k, n] : shapes) {
      for (int64_t num_tokens : {1, 2, 8, 16, 24, 32, 64, 512}) {
        if (n == 49152 && num_tokens == 512) continue;  // logits of selected rows only
        bench->Args({k, n, num_tokens, dtype});
      }
    }
  }
}

// One request: `context` tokens in the cache, the last `rows` of them in this step.
void bm_paged_attention(benchmark::State& state) {
  constexpr int64_t kHeads = 9, kKvHeads = 3, kHeadDim = 64, kBlockSize = 16;
  const int64_t context = state.range(0), rows = state.range(1);
  const auto dtype = static_cast<int32_t>(state.range(2));
  const int64_t element_size = dtype == PINFER_FLOAT32 ? 4 : 2;
  ThreadPool pool(pinfer::default_thread_count().count);
  ThreadPool::Scope scope(&pool);
  const int64_t num_blocks = (context + kBlockSize - 1) / kBlockSize + 1;
  const auto cache_size =
      static_cast<size_t>(num_blocks * kBlockSize * kKvHeads * kHeadDim * element_size);
  std::vector<uint8_t> k_cache(cache_size), v_cache(cache_size);
  std::vector<int32_t> block_table;
  for (int64_t i = num_blocks - 1; i > 0; --i) block_table.push_back(static_cast<int32_t>(i));
  const auto step = [&](int64_t length, int64_t num_rows, const std::vector<float>& q,
                        const std::vector<float>& k, std::vector<float>* out) {
    std::vector<int64_t> slots;
    for (int64_t position = length - num_rows; position < length; ++position) {
      slots.push_back(block_table[static_cast<size_t>(position / kBlockSize)] * kBlockSize +
                      position % kBlockSize);
    }
    const int32_t seq_lens[] = {static_cast<int32_t>(length)};
    const int32_t starts[] = {0, static_cast<int32_t>(num_rows)};
    return pinfer_paged_attention(
        q.data(), k.data(), k.data(), k_cache.data(), v_cache.data(), dtype, slots.data(),
        block_table.data(), seq_lens, starts, 0.125, 0, 0, num_rows, 1, kHeads, kKvHeads, kHeadDim,
        num_blocks, kBlockSize, static_cast<int64_t>(block_table.size()), out->data());
  };
  const auto q_size = static_cast<size_t>(kHeads * kHeadDim);
  const auto k_size = static_cast<size_t>(kKvHeads * kHeadDim);
  const auto length = static_cast<size_t>(context), width = static_cast<size_t>(rows);
  // Values equal keys and the keys of a head are all the same in one dimension: so is the output.
  std::vector<float> keys = random_floats(length * k_size, 3);
  for (size_t i = 0; i < keys.size(); i += kHeadDim) keys[i] = 0.5f;
  const std::vector<float> q = random_floats(length * q_size, 4);
  std::vector<float> out(length * q_size);
  const std::vector<float> last_keys(keys.end() - static_cast<int64_t>(width * k_size), keys.end());
  if (step(context, context, q, keys, &out) != 0 || step(context, rows, q, last_keys, &out) != 0 ||
      std::fabs(out[0] - 0.5f) > 1e-5f) {
    state.SkipWithError("wrong result");
    return;
  }
  for (auto _ : state) (void)step(context, rows, q, last_keys, &out);
  const double attended = static_cast<double>(rows) * static_cast<double>(context) -
                          0.5 * static_cast<double>(rows) * static_cast<double>(rows - 1);
  state.counters["GB/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(context * kKvHeads * kHeadDim * element_size),
                         benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] = benchmark::Counter(4e-9 * attended * kHeads * kHeadDim,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void bm_fork_join(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run([](void*, int) {}, nullptr);
}

void bm_parallel_for(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  int64_t sink[64] = {};
  for (auto _ : state) {
    pool.parallel_for(8, 1, [&](int64_t begin, int64_t) { benchmark::DoNotOptimize(sink[begin]); });
  }
}

#if defined(__x86_64__)
// The machine's limits, by AVX2 code: what the ops are measured against.

// Four streams at once: more than one core's prefetching of a single one brings in.
__attribute__((target("avx2"))) int64_t sum_words(const uint8_t* memory, int64_t size) {
  __m256i sums[8] = {};
  const int64_t stream = size / 4;
  for (int64_t i = 0; i < stream; i += 64) {
    for (int j = 0; j < 8; ++j) {
      sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(
                                              memory + j / 2 * stream + i + j % 2 * 32)));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
  return _mm256_extract_epi64(sums[0], 0);
}

void bm_read_bandwidth(benchmark::State& state) {
  if (!pinfer::cpu_features().avx2) {
    state.SkipWithError("needs AVX2");
    return;
  }
  constexpr int64_t kSize = 256 << 20, kPiece = 128 << 10;
  ThreadPool pool(pinfer::default_thread_count().count);
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(64, kSize));
  std::memset(memory, 1, kSize);
  for (auto _ : state) {
    pool.parallel_for(kSize, kPiece, [&](int64_t begin, int64_t end) {
      benchmark::DoNotOptimize(sum_words(memory + begin, end - begin));
    });
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(kSize) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
  std::free(memory);
}

__attribute__((target("avx2,fma"), noinline)) float multiply_add(int64_t count, float start) {
  __m256 sums[12];
  for (int j = 0; j < 12; ++j) sums[j] = _mm256_set1_ps(start + static_cast<float>(j));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(start);
  for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) sums[j] = _mm256_fmadd_ps(sums[j], a, b);
  }
  for (int j = 1; j < 12; ++j) sums[0] = _mm256_add_ps(sums[0], sums[j]);
  return _mm256_cvtss_f32(sums[0]);
}

void bm_fma_peak(benchmark::State& state) {
  if (!pinfer::cpu_features().avx2) {
    state.SkipWithError("needs AVX2");
    return;
  }
  constexpr int64_t kCount = 20000;
  ThreadPool pool(pinfer::default_thread_count().count);
  const int64_t pieces = 16 * pool.num_threads();
  for (auto _ : state) {
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        float start = 0.001f * static_cast<float>(i);
        benchmark::DoNotOptimize(start);
        benchmark::DoNotOptimize(multiply_add(kCount, start));
      }
    });
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * 8 * 12 * static_cast<double>(kCount * pieces),
                         benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(bm_read_bandwidth)->Apply(best_of_many)->Unit(benchmark::kMillisecond);
BENCHMARK(bm_fma_peak)->Apply(best_of_many)->Unit(benchmark::kMillisecond);
#endif

BENCHMARK(bm_linear)->Apply(linear_shapes)->Apply(best_of_many)->Unit(benchmark::kMicrosecond);
BENCHMARK(bm_paged_attention)
    ->ArgNames({"context", "rows", "dtype"})
    ->ArgsProduct({{128, 2048}, {1}, {PINFER_BFLOAT16, PINFER_FLOAT32}})
    ->ArgsProduct({{512}, {512}, {PINFER_BFLOAT16, PINFER_FLOAT32}})
    ->Apply(best_of_many)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(bm_fork_join)->ArgName("threads")->Arg(2)->Arg(4)->Apply(best_of_many);
BENCHMARK(bm_parallel_for)->ArgName("threads")->Arg(2)->Apply(best_of_many);

}  // namespace

BENCHMARK_MAIN();
