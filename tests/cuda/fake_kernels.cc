// The library of CUDA kernels for tests: arguments are checked against what the fake driver knows
// of memory and streams, when they are launched. What lies in memory is checked when the stream has
// come to the launch; then the kernels run in the emulation, on the CPU.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "csrc/kernels/kernel_table_cuda.h"
#include "csrc/ops.h"
#include "fake_driver.h"

namespace pinfer::cuda {
namespace {

size_t size_of(int32_t dtype) {
  return dtype == PINFER_FLOAT32 ? 4 : dtype == PINFER_FLOAT8_E4M3 ? 1 : 2;
}

// Starts `body`, which owns copies of its arguments, as a launch of the fake driver's.
template <typename Body>
int32_t run(const char* kernel, Stream stream, Body body) {
  constexpr FakeCudaClosure kFunctions = {
      [](void* closure) -> int32_t { return (*static_cast<Body*>(closure))(); },
      [](const void* closure) -> void* { return new Body(*static_cast<const Body*>(closure)); },
      [](void* closure) { delete static_cast<Body*>(closure); }};
  return fake_cuda_run(kernel, stream, &kFunctions, &body);
}

void check(const char* kernel, const char* argument, const void* memory, int64_t count,
           size_t item) {
  fake_cuda_check_range(kernel, argument, memory,
                        static_cast<size_t>(std::max<int64_t>(count, 0)) * item);
}

void check_weight(const char* kernel, const Weight& w) {
  const int64_t numbers = w.out_features * padded_in_features(w.dtype, w.in_features);
  if (w.dtype == PINFER_INT4) {
    const int64_t groups = w.out_features * num_weight_groups(w.in_features, w.group_size);
    check(kernel, "numbers", w.data, numbers / 2, 1);
    check(kernel, "scales", w.scales, groups, 2);
    check(kernel, "minima", w.minima, groups, 2);
  } else {
    check(kernel, "numbers", w.data, numbers, size_of(w.dtype));
    if (w.dtype == PINFER_FLOAT8_E4M3) check(kernel, "scales", w.scales, w.out_features, 4);
  }
}

void check_cache(const char* kernel, const KVCache& cache) {
  const int64_t count =
      cache.num_blocks * cache.num_kv_heads * cache.block_size * padded_head_dim(cache.head_dim);
  check(kernel, "k_cache", cache.k, count, size_of(cache.dtype));
  check(kernel, "v_cache", cache.v, count, size_of(cache.dtype));
}

int64_t rows_extent(int64_t num_tokens, int64_t stride, int64_t row) {
  return num_tokens == 0 ? 0 : (num_tokens - 1) * stride + row;
}

int32_t checked_write_rotary_cache(const RotaryCacheTask& t, Stream stream) {
  const char* kernel = "write_rotary_cache";
  const int64_t kv_row = t.cache.num_kv_heads * t.cache.head_dim;
  const int64_t q_row = t.num_heads * t.cache.head_dim;
  const size_t item = size_of(t.dtype);
  check(kernel, "q", t.q, rows_extent(t.num_tokens, t.q_stride, q_row), item);
  check(kernel, "k", t.k, rows_extent(t.num_tokens, t.k_stride, kv_row), item);
  check(kernel, "v", t.v, rows_extent(t.num_tokens, t.v_stride, kv_row), item);
  check(kernel, "cos", t.cos, t.num_tokens * (t.rotary_dim / 2), 4);
  check(kernel, "sin", t.sin, t.num_tokens * (t.rotary_dim / 2), 4);
  check(kernel, "q_out", t.q_out, t.num_tokens * q_row, item);
  check(kernel, "slot_mapping", t.slot_mapping, t.num_tokens, 8);
  check_cache(kernel, t.cache);
  return run(kernel, stream, [=] {
    // What the kernel does not check itself.
    for (int64_t i = 0; i < t.num_tokens; ++i) {
      if (t.slot_mapping[i] >= t.cache.num_blocks * t.cache.block_size) {
        fake_cuda_check_range(kernel, "a slot beyond the cache", nullptr, 1);
      }
    }
    return write_rotary_cache(t, stream);
  });
}

void check_attention(const char* kernel, const AttentionTask& t) {
  const int64_t numbers = t.num_tokens * t.num_heads * t.cache.head_dim;
  check(kernel, "q", t.q, numbers, size_of(t.dtype));
  check(kernel, "out", t.out, numbers, size_of(t.dtype));
  check(kernel, "block_table", t.block_table, t.num_requests * t.max_blocks, 4);
  check(kernel, "seq_lens", t.seq_lens, t.num_requests, 4);
  check(kernel, "query_start_loc", t.query_start_loc, t.num_requests + 1, 4);
  check_cache(kernel, t.cache);
}

void check_requests(const char* kernel, const AttentionTask& t) {
  for (int64_t s = 0; s < t.num_requests; ++s) {
    const int64_t blocks = (t.seq_lens[s] + t.cache.block_size - 1) / t.cache.block_size;
    const bool is_good =
        t.seq_lens[s] >= 0 && blocks <= t.max_blocks &&
        t.query_start_loc[s] <= t.query_start_loc[s + 1] &&
        t.query_start_loc[s + 1] <= t.num_tokens &&
        std::all_of(t.block_table + s * t.max_blocks, t.block_table + s * t.max_blocks + blocks,
                    [&](int32_t id) { return id >= 0 && id < t.cache.num_blocks; });
    if (!is_good) fake_cuda_check_range(kernel, "a request's length, rows or blocks", nullptr, 1);
  }
}

int32_t checked_attend_split(const AttentionTask& t, int64_t max_rows, int64_t max_seq_len,
                             int64_t split_size, void* workspace, size_t bytes, Stream stream) {
  const char* kernel = "attend_split";
  check_attention(kernel, t);
  fake_cuda_check_range(kernel, "workspace", workspace, bytes);
  return run(kernel, stream, [=] {
    check_requests(kernel, t);
    for (int64_t s = 0; s < t.num_requests; ++s) {
      if (t.seq_lens[s] > max_seq_len ||
          t.query_start_loc[s + 1] - t.query_start_loc[s] > max_rows) {
        fake_cuda_check_range(kernel, "a request beyond max_seq_len or max_rows", nullptr, 1);
      }
    }
    return attend_split(t, max_rows, max_seq_len, split_size, workspace, bytes, stream);
  });
}

int32_t checked_attend_prefill(const AttentionTask& t, Stream stream) {
  const char* kernel = "attend_prefill";
  check_attention(kernel, t);
  return run(kernel, stream, [=] {
    check_requests(kernel, t);
    return attend_prefill(t, stream);
  });
}

int32_t checked_multiply_few_rows(const void* x, int32_t x_dtype, int64_t num_tokens,
                                  const Weight& weight, void* out, int32_t out_dtype,
                                  Stream stream) {
  const char* kernel = "multiply_few_rows";
  check_weight(kernel, weight);
  check(kernel, "x", x, num_tokens * weight.in_features, size_of(x_dtype));
  check(kernel, "out", out, num_tokens * weight.out_features, size_of(out_dtype));
  return run(kernel, stream, [=] {
    return multiply_few_rows(x, x_dtype, num_tokens, weight, out, out_dtype, stream);
  });
}

// Stands for cuBLASLt, which computes on a GPU alone: the same product in pieces of few rows.
int32_t checked_multiply_rows(DenseMatmul&, const void* x, int32_t x_dtype, int64_t num_tokens,
                              const Weight& weight, void* out, int32_t out_dtype, void* workspace,
                              size_t bytes, Stream stream) {
  const char* kernel = "multiply_rows";
  check_weight(kernel, weight);
  check(kernel, "x", x, num_tokens * weight.in_features, size_of(x_dtype));
  check(kernel, "out", out, num_tokens * weight.out_features, size_of(out_dtype));
  fake_cuda_check_range(kernel, "workspace", workspace, bytes);
  if (bytes > 0) {
    run("round_rows", stream, [=] {
      std::memset(workspace, 0xff, std::min<size_t>(bytes, 1 << 20));  // as if it were used
      return 0;
    });
  }
  return run(kernel, stream, [=] {
    for (int64_t first = 0; first < num_tokens; first += kMaxLinearRows) {
      const auto* rows = static_cast<const char*>(x) +
                         static_cast<size_t>(first * weight.in_features) * size_of(x_dtype);
      auto* results = static_cast<char*>(out) +
                      static_cast<size_t>(first * weight.out_features) * size_of(out_dtype);
      if (const int32_t error =
              multiply_few_rows(rows, x_dtype, std::min(kMaxLinearRows, num_tokens - first), weight,
                                results, out_dtype, stream)) {
        return error;
      }
    }
    return int32_t{0};
  });
}

int32_t checked_gather_rows(const Weight& table, const int32_t* ids, int64_t first_row,
                            int64_t num_rows, void* out, int32_t out_dtype, int64_t out_stride,
                            Stream stream) {
  const char* kernel = "gather_rows";
  check_weight(kernel, table);
  check(kernel, "ids", ids, num_rows, 4);
  check(kernel, "out", out, num_rows * out_stride, size_of(out_dtype));
  return run(kernel, stream, [=] {
    for (int64_t i = 0; i < num_rows; ++i) {
      if (ids[i] < 0 || ids[i] >= table.out_features) {
        fake_cuda_check_range(kernel, "an id beyond the table", nullptr, 1);
      }
    }
    return gather_rows(table, ids, first_row, num_rows, out, out_dtype, out_stride, stream);
  });
}

int32_t checked_add_scaled(float* x, const float* y, int64_t count, float scale, Stream stream) {
  check("add_scaled", "x", x, count, 4);
  if (y != nullptr) check("add_scaled", "y", y, count, 4);
  return run("add_scaled", stream, [=] { return add_scaled(x, y, count, scale, stream); });
}

char only_matmul;
int64_t num_matmuls = 0;
DenseMatmul* open_matmul() {
  ++num_matmuls;
  return reinterpret_cast<DenseMatmul*>(&only_matmul);
}
void close_matmul(DenseMatmul*) { --num_matmuls; }

constexpr KernelTable kTable = {
    kKernelTableVersion,
    &pinfer_ops_last_error,
    &checked_write_rotary_cache,
    &checked_attend_split,
    &attention_workspace_bytes,
    &choose_split_size,
    &checked_attend_prefill,
    &checked_multiply_few_rows,
    &checked_multiply_rows,
    &multiply_rows_workspace_bytes,
    &checked_gather_rows,
    &checked_add_scaled,
    &open_matmul,
    &close_matmul,
};

}  // namespace
}  // namespace pinfer::cuda

// In place of csrc/kernels/kernel_table_cuda.cc.
const pinfer::cuda::KernelTable* pinfer_cuda_kernel_table() { return &pinfer::cuda::kTable; }

FAKE_CUDA_API int64_t fake_kernels_num_matmuls() { return pinfer::cuda::num_matmuls; }
