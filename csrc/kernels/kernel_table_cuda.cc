#include "csrc/kernels/kernel_table_cuda.h"

#include "csrc/ops.h"

namespace pinfer::cuda {
namespace {

DenseMatmul* open_matmul() { return DenseMatmul::open().release(); }
void close_matmul(DenseMatmul* matmul) { delete matmul; }

constexpr KernelTable kTable = {
    kKernelTableVersion,
    &pinfer_ops_last_error,
    &write_rotary_cache,
    &attend_split,
    &attention_workspace_bytes,
    &choose_split_size,
    &attend_prefill,
    &multiply_few_rows,
    &multiply_rows,
    &multiply_rows_workspace_bytes,
    &gather_rows,
    &add_scaled,
    &open_matmul,
    &close_matmul,
};

}  // namespace
}  // namespace pinfer::cuda

const pinfer::cuda::KernelTable* pinfer_cuda_kernel_table() { return &pinfer::cuda::kTable; }
