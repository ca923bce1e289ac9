// What the launcher of few rows hands to the kernels of each weight format.
#pragma once

#include "csrc/kernels/kernels_cuda.h"

namespace pinfer::cuda {

struct FewRowsArguments {
  const void* x;
  Weight weight;
  void* out;
  int32_t out_dtype;
  int num_tokens;      // 1 to kMaxLinearRows
  int log_group_size;  // of int4
  bool is_x_aligned;   // every eight of x's numbers may be loaded at once
};

int32_t multiply_few_rows_bfloat16(const FewRowsArguments& a, int32_t x_dtype, Stream stream);
int32_t multiply_few_rows_float16(const FewRowsArguments& a, int32_t x_dtype, Stream stream);
int32_t multiply_few_rows_float8(const FewRowsArguments& a, int32_t x_dtype, Stream stream);
int32_t multiply_few_rows_int4(const FewRowsArguments& a, int32_t x_dtype, Stream stream);

}  // namespace pinfer::cuda
