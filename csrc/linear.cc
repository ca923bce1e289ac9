// pinfer_linear: checks, preparation of the rows, division of the work.
#include <algorithm>
#include <cstdint>

#include "csrc/kernels/kernels.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/packed_weight.h"
#include "csrc/scratch.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

// Rows that share a pass over a chunk of panels: their prepared form should stay in the second
// level cache.
constexpr int64_t kRowsPerPass = 96;
constexpr int64_t kPassBytes = 256 * 1024;
constexpr int64_t kRowMultiple = 12;  // of every path's tile rows

// Numbers below which preparing rows is not worth a fork-join.
constexpr int64_t kSerialPrepare = 16 * 1024;

// Rows that are prepared at a time: bounds the scratch memory of long prompts.
constexpr int64_t kMaxPreparedRows = 5 * kRowsPerPass;

// Panels of a piece of work, so that all threads end at about the same time. Few panels at a time
// read fewer streams of weights at once, which is slower (by about this factor, measured).
int64_t panels_per_chunk(int64_t num_panels, int64_t num_passes, int64_t num_threads) {
  constexpr struct {
    int64_t panels;
    double slowness;
  } kChoices[] = {{16, 1.0}, {8, 1.0}, {4, 1.0}, {2, 1.1}, {1, 1.25}};
  int64_t best = 1;
  double best_time = 1e300;
  for (const auto& choice : kChoices) {
    const int64_t pieces = (num_panels + choice.panels - 1) / choice.panels * num_passes;
    const int64_t rounds = (pieces + num_threads - 1) / num_threads;
    const double time = static_cast<double>(rounds * choice.panels) * choice.slowness;
    if (time < best_time) {
      best = choice.panels;
      best_time = time;
    }
  }
  return best;
}

int64_t rows_per_pass(int64_t row_size) {
  const int64_t fitting = kPassBytes / std::max<int64_t>(row_size, 1);
  return std::clamp(fitting / kRowMultiple * kRowMultiple, kRowMultiple, kRowsPerPass);
}

void prepare_rows(const LinearKernel& kernel, const LinearTask& task, const float* x, int64_t rows,
                  char* prepared) {
  const int64_t grain = std::max<int64_t>(1, kSerialPrepare / task.k);
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernel.prepare(x + row * task.k, task.k, task.group_size, prepared + row * task.x_stride);
    }
  });
}

void multiply(const LinearKernel& kernel, const LinearTask& task, int64_t rows) {
  const int64_t num_panels = (task.n + kPanelWidth - 1) / kPanelWidth;
  const int64_t pass = rows_per_pass(task.x_stride);
  const int64_t num_passes = (rows + pass - 1) / pass;
  const int64_t chunk = panels_per_chunk(num_panels, num_passes, current_num_threads());
  const int64_t num_chunks = (num_panels + chunk - 1) / chunk;
  parallel_for(num_chunks * num_passes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / num_chunks * pass, panel = i % num_chunks * chunk;
      kernel.multiply(task, row, std::min(row + pass, rows), panel,
                      std::min(panel + chunk, num_panels));
    }
  });
}

const LinearKernel& kernel_for(int32_t weight_dtype) {
  const KernelTable& table = kernels();
  switch (weight_dtype) {
    case PINFER_FLOAT32:
      return *table.linear_float32;
    case PINFER_BFLOAT16:
      return *table.linear_bfloat16;
    case PINFER_INT8:
      return *table.linear_int8;
    default:
      return *table.linear_int4;
  }
}

int32_t check_weight(const PackedWeight& weight, int64_t n, int64_t k) {
  if (const int32_t error = check_weight_format("linear", weight)) return error;
  PINFER_OPS_CHECK(k >= 1, "linear: in_features must be at least 1, got %lld",
                   static_cast<long long>(k));
  PINFER_OPS_CHECK(n >= 1, "linear: out_features must be at least 1, got %lld",
                   static_cast<long long>(n));
  return PINFER_OPS_OK;
}

int32_t linear(const float* x, int64_t rows, int64_t k, const PackedWeight& weight, int64_t n,
               float* out) {
  PINFER_OPS_CHECK(rows >= 0, "linear: num_tokens must be at least 0, got %lld",
                   static_cast<long long>(rows));
  if (const int32_t error = check_weight(weight, n, k)) return error;
  if (rows == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(x != nullptr && weight.data != nullptr && out != nullptr,
                   "linear: x, weight and out must not be null");

  const LinearKernel& kernel = kernel_for(weight.dtype);
  LinearTask task{
      x, k * static_cast<int64_t>(sizeof(float)), k, weight.data, n, out, n, weight.group_size};
  if (kernel.prepare == nullptr) {
    multiply(kernel, task, rows);
    return PINFER_OPS_OK;
  }
  static thread_local Scratch scratch;
  task.x_stride = kernel.prepared_row_size(k, weight.group_size);
  const int64_t num_blocks = (rows + kMaxPreparedRows - 1) / kMaxPreparedRows;
  const int64_t max_rows = (rows + num_blocks - 1) / num_blocks;
  char* prepared =
      static_cast<char*>(scratch.reserve(static_cast<size_t>(max_rows * task.x_stride)));
  task.x = prepared;
  for (int64_t row = 0; row < rows; row += max_rows) {
    const int64_t count = std::min(max_rows, rows - row);
    prepare_rows(kernel, task, x + row * k, count, prepared);
    task.out = out + row * n;
    multiply(kernel, task, count);
  }
  return PINFER_OPS_OK;
}

}  // namespace

}  // namespace pinfer

int32_t pinfer_linear(const float* x, int64_t num_tokens, int64_t in_features, const void* weight,
                      int32_t weight_dtype, int64_t group_size, int64_t out_features, float* out) {
  return pinfer::run_op("linear", [&] {
    return pinfer::linear(x, num_tokens, in_features, {weight, weight_dtype, group_size},
                          out_features, out);
  });
}
