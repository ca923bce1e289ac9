#include "executor/cuda_kv_cache.h"

#include <string>

#include "bundle/manifest.h"
#include "csrc/kernels/kernels_cuda.h"
#include "csrc/shim/cuda_arena.h"

namespace pinfer {
namespace {

constexpr int64_t kAlignment = kCudaBufferAlignment;

}  // namespace

int64_t CudaKVCacheShape::tensor_block_bytes() const {
  return num_kv_heads * cuda::padded_head_dim(head_dim) * block_size * dtype_size(dtype);
}

int64_t CudaKVCacheShape::bytes_per_block() const {
  return 2 * int64_t{num_tensors} * tensor_block_bytes();
}

Result<std::unique_ptr<CudaKVCache>> CudaKVCache::create(std::shared_ptr<CudaDevice> device,
                                                         const CudaKVCacheShape& shape) {
  const int64_t tensor_bytes =
      (shape.tensor_block_bytes() * shape.num_blocks + kAlignment - 1) / kAlignment * kAlignment;
  const std::string what = std::to_string(shape.num_blocks) + " cache blocks (--num-blocks)";
  PINFER_ASSIGN_OR_RETURN(
      CudaMemoryBlock memory,
      CudaMemoryBlock::allocate(device, static_cast<size_t>(2 * shape.num_tensors * tensor_bytes),
                                what.c_str()));
  std::unique_ptr<CudaKVCache> cache(new CudaKVCache(shape, tensor_bytes, std::move(memory)));
  // Rows of tables are filled up with the null block, whose contents no result depends on.
  for (int32_t i = 0; i < shape.num_tensors; ++i) {
    for (void* tensor : {cache->k(i), cache->v(i)}) {
      PINFER_RETURN_IF_ERROR(
          cuda_status(device->clear(tensor, static_cast<size_t>(shape.tensor_block_bytes()))));
    }
  }
  return cache;
}

}  // namespace pinfer
