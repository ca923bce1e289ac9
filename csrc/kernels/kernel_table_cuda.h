// The CUDA kernels as a library of their own, libpinfer_cuda.so: programs open it where there is a
// GPU, so that one program serves both kinds of bundles and needs no CUDA to start.
#pragma once

#include "csrc/kernels/dense_matmul_cuda.h"
#include "csrc/kernels/kernels_cuda.h"

namespace pinfer::cuda {

// Changes with any of the functions below or the structs that they take.
inline constexpr int32_t kKernelTableVersion = 1;
inline constexpr const char* kKernelLibrary = "libpinfer_cuda.so";
inline constexpr const char* kKernelTableSymbol = "pinfer_cuda_kernel_table";

// Functions of kernels_cuda.h and dense_matmul_cuda.h; last_error is the library's own
// pinfer_ops_last_error().
struct KernelTable {
  int32_t version;
  const char* (*last_error)();
  int32_t (*write_rotary_cache)(const RotaryCacheTask& task, Stream stream);
  int32_t (*attend_split)(const AttentionTask& task, int64_t max_rows, int64_t max_seq_len,
                          int64_t split_size, void* workspace, size_t workspace_bytes,
                          Stream stream);
  size_t (*attention_workspace_bytes)(int64_t num_tokens, int64_t num_heads, int64_t head_dim,
                                      int64_t max_seq_len, int64_t split_size);
  int64_t (*choose_split_size)(int64_t num_requests, int64_t num_kv_heads, int64_t max_seq_len,
                               int64_t num_sms);
  int32_t (*attend_prefill)(const AttentionTask& task, Stream stream);
  int32_t (*multiply_few_rows)(const void* x, int32_t x_dtype, int64_t num_tokens,
                               const Weight& weight, void* out, int32_t out_dtype, Stream stream);
  int32_t (*multiply_rows)(DenseMatmul& matmul, const void* x, int32_t x_dtype, int64_t num_tokens,
                           const Weight& weight, void* out, int32_t out_dtype, void* workspace,
                           size_t workspace_bytes, Stream stream);
  size_t (*multiply_rows_workspace_bytes)(int32_t x_dtype, int64_t num_tokens,
                                          const Weight& weight);
  int32_t (*gather_rows)(const Weight& table, const int32_t* ids, int64_t first_row,
                         int64_t num_rows, void* out, int32_t out_dtype, int64_t out_stride,
                         Stream stream);
  int32_t (*add_scaled)(float* x, const float* y, int64_t count, float scale, Stream stream);
  // Null where cuBLASLt cannot be used, with the reason in last_error().
  DenseMatmul* (*open_matmul)();
  void (*close_matmul)(DenseMatmul* matmul);
};

}  // namespace pinfer::cuda

extern "C" __attribute__((visibility("default"))) const pinfer::cuda::KernelTable*
pinfer_cuda_kernel_table();
