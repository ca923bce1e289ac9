// pinfer_linear: checks, and the rows in portions.
#include <algorithm>
#include <cstdint>

#include "csrc/kernels/kernels.h"
#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/packed_weight.h"
#include "csrc/read_ahead.h"
#include "csrc/row_groups.h"
#include "csrc/scratch.h"

namespace pinfer {

namespace {

// Rows that are prepared at a time: bounds the scratch memory of long prompts.
constexpr int64_t kMaxPreparedRows = 5 * kRowsPerPass;

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

  if (rows <= kFewRows) read_ahead(weight, n, k);
  const LinearKernel& kernel = linear_kernel(weight.dtype);
  RowGroup group{
      {x, k * static_cast<int64_t>(sizeof(float)), k, weight.data, n, out, n, weight.group_size},
      rows};
  if (kernel.prepare == nullptr) {
    multiply_groups(kernel, &group, 1);
    return PINFER_OPS_OK;
  }
  static thread_local Scratch scratch;
  LinearTask& task = group.task;
  task.x_stride = kernel.prepared_row_size(k, weight.group_size);
  const int64_t num_blocks = (rows + kMaxPreparedRows - 1) / kMaxPreparedRows;
  const int64_t max_rows = (rows + num_blocks - 1) / num_blocks;
  char* prepared =
      static_cast<char*>(scratch.reserve(static_cast<size_t>(max_rows * task.x_stride)));
  task.x = prepared;
  for (int64_t row = 0; row < rows; row += max_rows) {
    group.rows = std::min(max_rows, rows - row);
    prepare_rows(kernel, task, x + row * k, group.rows, prepared);
    task.out = out + row * n;
    multiply_groups(kernel, &group, 1);
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
