// Rows of a weight as activations: embeddings, and pieces of quantised weights for the dense
// product of many rows.
#include <cmath>

#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/number_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr unsigned kThreads = 256;

struct GatherArguments {
  Weight table;
  const int32_t* ids;
  int64_t first_row, num_rows;
  void* out;
  int32_t out_dtype;
  int64_t out_stride;
};

__device__ __forceinline__ void unpack_pairs(const Eight<Float16>& eight, float (&numbers)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t pair = eight.pairs[i / 2];
    numbers[i] = to_float(bit_cast<Float16>(static_cast<uint16_t>(i % 2 ? pair >> 16 : pair)));
  }
}

// The numbers k ... k + 7 of a row; k is a multiple of 8 within the padded row.
__device__ __forceinline__ void weight_eight(const Weight& weight, int64_t row, int64_t k,
                                             float (&numbers)[8]) {
  if (weight.dtype == PINFER_INT4) {
    const int64_t padded = (weight.in_features + 127) / 128 * 128;
    const int64_t in_step = k % 128;
    const int64_t at = row * padded / 8 + k / 128 * 16 + in_step % 32 / 8 * 4 + in_step / 32;
    const uint32_t word = static_cast<const uint32_t*>(weight.data)[at];
    const int64_t group =
        row * num_weight_groups(weight.in_features, weight.group_size) + k / weight.group_size;
    const float scale = to_float(static_cast<const Float16*>(weight.scales)[group]);
    const float minimum = to_float(static_cast<const Float16*>(weight.minima)[group]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t nibble = word >> (i % 2 ? 16 + 2 * (i - 1) : 2 * i) & 15;
      numbers[i] = fmaf(scale, static_cast<float>(nibble), minimum);
    }
  } else if (weight.dtype == PINFER_FLOAT8_E4M3) {
    const int64_t padded = (weight.in_features + 63) / 64 * 64;
    const float scale = static_cast<const float*>(weight.scales)[row];
    unpack_pairs(load_eight<Float16>(static_cast<const Float8*>(weight.data) + row * padded + k),
                 numbers);
#pragma unroll
    for (int i = 0; i < 8; ++i) numbers[i] *= scale;
  } else {
    const int64_t at = row * ((weight.in_features + 31) / 32 * 32) + k;
    if (weight.dtype == PINFER_FLOAT16) {
      unpack_pairs(load_eight<Float16>(static_cast<const Float16*>(weight.data) + at), numbers);
    } else {
      const Eight<BFloat16> eight =
          load_eight<BFloat16>(static_cast<const BFloat16*>(weight.data) + at);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t pair = eight.pairs[i / 2];
        numbers[i] = bit_cast<float>(i % 2 ? pair & 0xffff0000u : pair << 16);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) gather_kernel(const GatherArguments a) {
  const int64_t row = blockIdx.x;
  const int64_t table_row = a.ids != nullptr ? a.ids[row] : a.first_row + row;
  for (int64_t k = int64_t{threadIdx.x} * 8; k < a.out_stride; k += kThreads * 8) {
    float numbers[8] = {};
    if (k < a.table.in_features) weight_eight(a.table, table_row, k, numbers);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (k + i >= a.out_stride) continue;
      store_float(a.out, row * a.out_stride + k + i, a.out_dtype,
                  k + i < a.table.in_features ? numbers[i] : 0.0f);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    round_kernel(const float* x, int64_t row_size, void* out, int32_t dtype, int64_t out_stride) {
  const int64_t row = blockIdx.x;
  for (int64_t i = threadIdx.x; i < out_stride; i += kThreads) {
    store_float(out, row * out_stride + i, dtype, i < row_size ? x[row * row_size + i] : 0.0f);
  }
}

}  // namespace

int32_t gather_rows(const Weight& table, const int32_t* ids, int64_t first_row, int64_t num_rows,
                    void* out, int32_t out_dtype, int64_t out_stride, Stream stream) {
  const char* op = "gather_rows";
  if (const int32_t error = check_weight(op, table)) return error;
  if (const int32_t error = check_activation(op, "out", out_dtype)) return error;
  PINFER_OPS_CHECK(num_rows >= 0, "%s: num_rows must be at least 0, got %lld", op,
                   number(num_rows));
  PINFER_OPS_CHECK(out_stride >= table.in_features,
                   "%s: out_stride must be at least %lld, got %lld", op, number(table.in_features),
                   number(out_stride));
  PINFER_OPS_CHECK(ids != nullptr || (first_row >= 0 && first_row + num_rows <= table.out_features),
                   "%s: rows %lld to %lld of a table of %lld", op, number(first_row),
                   number(first_row + num_rows), number(table.out_features));
  if (num_rows == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(out != nullptr, "%s: out must not be null", op);
  return launch(op, &gather_kernel, dim3(static_cast<unsigned>(num_rows)), kThreads, 0, stream,
                {table, ids, first_row, num_rows, out, out_dtype, out_stride});
}

int32_t round_rows(const float* x, int64_t num_rows, int64_t row_size, void* out, int32_t out_dtype,
                   int64_t out_stride, Stream stream) {
  const char* op = "round_rows";
  if (const int32_t error = check_activation(op, "out", out_dtype)) return error;
  PINFER_OPS_CHECK(num_rows >= 0 && row_size >= 1 && out_stride >= row_size,
                   "%s: %lld rows of %lld numbers, %lld apart", op, number(num_rows),
                   number(row_size), number(out_stride));
  if (num_rows == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(x != nullptr && out != nullptr, "%s: x and out must not be null", op);
  return launch(op, &round_kernel, dim3(static_cast<unsigned>(num_rows)), kThreads, 0, stream, x,
                row_size, out, out_dtype, out_stride);
}

}  // namespace pinfer::cuda
