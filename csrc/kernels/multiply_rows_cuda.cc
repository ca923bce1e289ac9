// A linear layer for any number of rows: few on our kernels, many on cuBLASLt.
#include <algorithm>

#include "csrc/kernels/checks_cuda.h"
#include "csrc/kernels/dense_matmul_cuda.h"

namespace pinfer::cuda {

namespace {

constexpr size_t kAlignment = 256;
// An unpacked piece of a quantised weight: it should be read again from the L2 cache (50 MB).
constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr size_t kMatmulBytes = size_t{32} << 20;
constexpr int64_t kPieceOutputs = 16;  // a piece is a multiple of this

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool is_quantized(const Weight& weight) {
  return weight.dtype == PINFER_INT4 || weight.dtype == PINFER_FLOAT8_E4M3;
}

int32_t product_dtype(const Weight& weight, int32_t x_dtype) {
  if (!is_quantized(weight)) return weight.dtype;
  return x_dtype == PINFER_FLOAT16 ? PINFER_FLOAT16 : PINFER_BFLOAT16;
}

// Numbers from one unpacked row to the next.
int64_t piece_stride(const Weight& weight) { return (weight.in_features + 7) / 8 * 8; }

size_t row_bytes(const Weight& weight) { return static_cast<size_t>(piece_stride(weight)) * 2; }

size_t rounded_x_bytes(int32_t x_dtype, int64_t num_tokens, const Weight& weight) {
  if (x_dtype == product_dtype(weight, x_dtype)) return 0;
  return aligned(static_cast<size_t>(num_tokens) * row_bytes(weight));
}

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

size_t multiply_rows_workspace_bytes(int32_t x_dtype, int64_t num_tokens, const Weight& weight) {
  if (num_tokens <= kMaxLinearRows) return 0;
  size_t bytes = rounded_x_bytes(x_dtype, num_tokens, weight) + kMatmulBytes;
  if (is_quantized(weight)) {
    const size_t whole =
        static_cast<size_t>(round_up(weight.out_features, kPieceOutputs)) * row_bytes(weight);
    bytes += aligned(std::min(whole, std::max(kPieceBytes, kPieceOutputs * row_bytes(weight))));
  }
  return bytes;
}

int32_t multiply_rows(DenseMatmul& matmul, const void* x, int32_t x_dtype, int64_t num_tokens,
                      const Weight& weight, void* out, int32_t out_dtype, void* workspace,
                      size_t workspace_bytes, Stream stream) {
  if (num_tokens <= kMaxLinearRows) {
    return multiply_few_rows(x, x_dtype, num_tokens, weight, out, out_dtype, stream);
  }
  const char* op = "multiply_rows";
  if (const int32_t error = check_weight(op, weight)) return error;
  if (const int32_t error = check_activation(op, "x", x_dtype)) return error;
  const int32_t dtype = product_dtype(weight, x_dtype);
  PINFER_OPS_CHECK(x_dtype == dtype || x_dtype == PINFER_FLOAT32,
                   "%s: x of dtype %d does not go with a weight of dtype %d", op, x_dtype,
                   weight.dtype);
  PINFER_OPS_CHECK(x != nullptr && out != nullptr, "%s: x and out must not be null", op);
  PINFER_OPS_CHECK(is_aligned(workspace, kAlignment),
                   "%s: the workspace must be aligned to 256 bytes", op);
  const size_t x_bytes = rounded_x_bytes(x_dtype, num_tokens, weight);
  const size_t least = x_bytes + (is_quantized(weight) ? kPieceOutputs * row_bytes(weight) : 0);
  PINFER_OPS_CHECK(workspace_bytes >= least, "%s: needs a workspace of %zu bytes, got %zu", op,
                   least, workspace_bytes);

  DenseMatmul::Task task = {x,
                            weight.data,
                            out,
                            dtype,
                            out_dtype,
                            num_tokens,
                            weight.out_features,
                            weight.in_features,
                            weight.in_features,
                            padded_in_features(weight.dtype, weight.in_features),
                            weight.out_features};
  char* left = static_cast<char*>(workspace);
  size_t left_bytes = workspace_bytes;
  if (x_bytes > 0) {
    if (const int32_t error =
            round_rows(static_cast<const float*>(x), num_tokens, weight.in_features, left, dtype,
                       piece_stride(weight), stream)) {
      return error;
    }
    task.x = left;
    task.x_stride = piece_stride(weight);
    left += x_bytes;
    left_bytes -= x_bytes;
  }
  if (!is_quantized(weight)) return matmul.multiply(task, left, left_bytes, stream);

  // At least half of what is left for the piece, the rest for cuBLASLt.
  const size_t most = std::max(left_bytes > kMatmulBytes ? left_bytes - kMatmulBytes : 0,
                               std::max(left_bytes / 2, kPieceOutputs * row_bytes(weight)));
  const int64_t outputs =
      std::min(round_up(weight.out_features, kPieceOutputs),
               static_cast<int64_t>(most / row_bytes(weight)) / kPieceOutputs * kPieceOutputs);
  char* rest =
      left + std::min(left_bytes, aligned(static_cast<size_t>(outputs) * row_bytes(weight)));
  task.weight = left;
  task.weight_stride = piece_stride(weight);
  for (int64_t first = 0; first < weight.out_features; first += outputs) {
    task.out_features = std::min(outputs, weight.out_features - first);
    if (const int32_t error = gather_rows(weight, nullptr, first, task.out_features, left, dtype,
                                          task.weight_stride, stream)) {
      return error;
    }
    task.out = static_cast<char*>(out) + first * (out_dtype == PINFER_FLOAT32 ? 4 : 2);
    const auto rest_bytes = static_cast<size_t>(left + left_bytes - rest);
    if (const int32_t error = matmul.multiply(task, rest, rest_bytes, stream)) return error;
  }
  return PINFER_OPS_OK;
}

}  // namespace pinfer::cuda
