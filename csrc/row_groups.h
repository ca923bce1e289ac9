// The multiplication behind linear and moe: rows times packed weights, divided over the pool.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels.h"

namespace pinfer {

// Rows that share a pass over a chunk of panels: their prepared form should stay in the second
// level cache.
inline constexpr int64_t kRowsPerPass = 96;

// Up to so many rows, reading the weight takes longer than multiplying.
inline constexpr int64_t kFewRows = 8;

// Panels that kernels multiply side by side.
inline constexpr int64_t kPanelsPerTile = 4;

// Rows that are multiplied with one weight.
struct RowGroup {
  LinearTask task;
  int64_t rows;
  int64_t first_piece = 0;  // set by multiply_groups
};

// REQUIRES a dtype that check_weight_format accepts.
const LinearKernel& linear_kernel(int32_t weight_dtype);

// x [rows, task.k] as the kernel takes it, task.x_stride bytes apart.
// REQUIRES kernel.prepare.
void prepare_rows(const LinearKernel& kernel, const LinearTask& task, const float* x, int64_t rows,
                  char* prepared);

// All groups in one parallel region. REQUIRES at least one group, none without rows; their tasks
// differ in x, weight and out alone.
void multiply_groups(const LinearKernel& kernel, RowGroup* groups, int64_t num_groups);

}  // namespace pinfer
