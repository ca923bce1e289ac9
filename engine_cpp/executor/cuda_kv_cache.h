// The memory behind the cache blocks, on the device: pairs of tensors, allocated once, used by
// block id. What KVCacheMemory is on the CPU.
#pragma once

#include <cstdint>
#include <memory>

#include "executor/cuda_memory_block.h"

namespace pinfer {

struct CudaKVCacheShape {
  int32_t num_tensors = 0;  // pairs: layers of the largest group
  int64_t num_blocks = 0;   // the null block included
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  int32_t dtype = -1;  // torch's ScalarType code

  int64_t tensor_block_bytes() const;  // of one K or V
  int64_t bytes_per_block() const;     // over all tensors, K and V
};

class CudaKVCache {
 public:
  // RESOURCE_EXHAUSTED with the sizes if there is not as much memory. The null block is zeroed.
  static Result<std::unique_ptr<CudaKVCache>> create(std::shared_ptr<CudaDevice> device,
                                                     const CudaKVCacheShape& shape);

  const CudaKVCacheShape& shape() const { return shape_; }
  // [num_blocks, num_kv_heads, block_size, padded head_dim]
  void* k(int32_t tensor) const { return memory_.data() + 2 * tensor * tensor_bytes_; }
  void* v(int32_t tensor) const { return memory_.data() + (2 * tensor + 1) * tensor_bytes_; }

 private:
  CudaKVCache(const CudaKVCacheShape& shape, int64_t tensor_bytes, CudaMemoryBlock memory)
      : shape_(shape), tensor_bytes_(tensor_bytes), memory_(std::move(memory)) {}

  CudaKVCacheShape shape_;
  int64_t tensor_bytes_;  // of one K or V, aligned
  CudaMemoryBlock memory_;
};

}  // namespace pinfer
