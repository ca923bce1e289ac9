// Products of many rows: cuBLASLt, opened at run time, so that a program without a GPU needs no
// such library and one with a GPU takes the machine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/kernels/kernels_cuda.h"

namespace pinfer::cuda {

// One thread at a time. Owns a handle of the library; keeps the algorithm of each shape that it has
// seen, so that only the first product of a shape asks for one.
class DenseMatmul {
 public:
  // Tries the names in turn. Null if none can be used, with every reason in
  // pinfer_ops_last_error(). A CUDA device must be current.
  static std::unique_ptr<DenseMatmul> open(const std::vector<std::string>& names = {
                                               "libcublasLt.so.13", "libcublasLt.so.12"});
  ~DenseMatmul();

  // out [num_tokens, out_features] = x [num_tokens, in_features] * weight^T, of rows that are
  // *_stride elements apart. x and weight bfloat16 or float16 alike (`dtype`), out the same or
  // float32; sums in float32.
  struct Task {
    const void* x;
    const void* weight;
    void* out;
    int32_t dtype, out_dtype;
    int64_t num_tokens, out_features, in_features;
    int64_t x_stride, weight_stride, out_stride;
  };
  int32_t multiply(const Task& task, void* workspace, size_t workspace_bytes, Stream stream);

  // The library's own number.
  size_t version() const;

  struct Library;

 private:
  explicit DenseMatmul(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

// A linear layer for any number of rows, as multiply_few_rows() says; its kernels up to 16 rows.
// Beyond, float32 rows are rounded into the workspace, and quantised weights are unpacked there a
// piece at a time (few enough outputs to stay in the L2 cache). out: float32, or the dtype in which
// x is multiplied.
int32_t multiply_rows(DenseMatmul& matmul, const void* x, int32_t x_dtype, int64_t num_tokens,
                      const Weight& weight, void* out, int32_t out_dtype, void* workspace,
                      size_t workspace_bytes, Stream stream);

// What multiply_rows() works well with; aligned to 256. Less than that of 16 outputs is refused.
size_t multiply_rows_workspace_bytes(int32_t x_dtype, int64_t num_tokens, const Weight& weight);

}  // namespace pinfer::cuda
