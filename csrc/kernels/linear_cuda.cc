// Weights on the device: their formats, and which kernel multiplies few rows by them.
#include <bit>

#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/few_rows_cuda.h"

namespace pinfer::cuda {

int64_t weight_step(int32_t dtype) {
  switch (dtype) {
    case PINFER_BFLOAT16:
    case PINFER_FLOAT16:
      return 32;
    case PINFER_FLOAT8_E4M3:
      return 64;
    case PINFER_INT4:
      return 128;
    default:
      return 0;
  }
}

int32_t check_weight(const char* op, const Weight& weight) {
  PINFER_OPS_CHECK(weight_step(weight.dtype) != 0,
                   "%s: weight dtype must be bfloat16 (15), float16 (5), float8_e4m3 (24) or int4 "
                   "(0), got %d",
                   op, weight.dtype);
  PINFER_OPS_CHECK(
      weight.out_features >= 1 && weight.in_features >= 1 && weight.in_features <= 1 << 30,
      "%s: a weight must have at least 1 output and 1 to 2^30 inputs, got %lld and "
      "%lld",
      op, number(weight.out_features), number(weight.in_features));
  PINFER_OPS_CHECK(weight.data != nullptr, "%s: the weight must not be null", op);
  PINFER_OPS_CHECK(is_aligned(weight.data, 16), "%s: the weight must be aligned to 16 bytes", op);
  const bool is_int4 = weight.dtype == PINFER_INT4;
  PINFER_OPS_CHECK(weight.scales != nullptr || !(is_int4 || weight.dtype == PINFER_FLOAT8_E4M3),
                   "%s: a quantised weight must have scales", op);
  PINFER_OPS_CHECK(weight.minima != nullptr || !is_int4, "%s: an int4 weight must have minima", op);
  PINFER_OPS_CHECK(is_int4 ? weight.group_size >= 32 && weight.group_size <= 1 << 20 &&
                                 std::has_single_bit(static_cast<uint64_t>(weight.group_size))
                           : weight.group_size == 0,
                   "%s: group_size must be 32 or a power of 2 above for int4 and 0 for other "
                   "weights, got %lld",
                   op, number(weight.group_size));
  return PINFER_OPS_OK;
}

int32_t multiply_few_rows(const void* x, int32_t x_dtype, int64_t num_tokens, const Weight& weight,
                          void* out, int32_t out_dtype, Stream stream) {
  const char* op = "multiply_few_rows";
  if (const int32_t error = check_weight(op, weight)) return error;
  if (const int32_t error = check_activation(op, "x", x_dtype)) return error;
  if (const int32_t error = check_activation(op, "out", out_dtype)) return error;
  PINFER_OPS_CHECK(num_tokens >= 0 && num_tokens <= kMaxLinearRows,
                   "%s: num_tokens must be 0 to %lld, got %lld", op, number(kMaxLinearRows),
                   number(num_tokens));
  if (num_tokens == 0) return PINFER_OPS_OK;
  PINFER_OPS_CHECK(x != nullptr && out != nullptr, "%s: x and out must not be null", op);
  const int32_t other = weight.dtype == PINFER_FLOAT16    ? PINFER_BFLOAT16
                        : weight.dtype == PINFER_BFLOAT16 ? PINFER_FLOAT16
                                                          : -1;
  PINFER_OPS_CHECK(x_dtype != other, "%s: x of dtype %d does not go with a weight of dtype %d", op,
                   x_dtype, weight.dtype);
  const bool is_int4 = weight.dtype == PINFER_INT4;
  const FewRowsArguments arguments = {
      x,
      weight,
      out,
      out_dtype,
      static_cast<int>(num_tokens),
      is_int4 ? std::countr_zero(static_cast<uint64_t>(weight.group_size)) : 0,
      weight.in_features % 8 == 0 && is_aligned(x, 16)};
  switch (weight.dtype) {
    case PINFER_BFLOAT16:
      return multiply_few_rows_bfloat16(arguments, x_dtype, stream);
    case PINFER_FLOAT16:
      return multiply_few_rows_float16(arguments, x_dtype, stream);
    case PINFER_FLOAT8_E4M3:
      return multiply_few_rows_float8(arguments, x_dtype, stream);
    default:
      return multiply_few_rows_int4(arguments, x_dtype, stream);
  }
}

}  // namespace pinfer::cuda
