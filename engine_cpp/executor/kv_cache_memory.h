// The memory behind the cache blocks: pairs of tensors, allocated once, used by block id. Layers of
// different groups may share a pair: their blocks differ (core/kv_cache_config.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/status.h"

namespace pinfer {

// Elements that a token's K or V of one head takes: int8 numbers are followed by a float32 scale.
int64_t kv_token_width(int32_t dtype, int64_t head_dim);

struct KVCacheShape {
  int32_t num_tensors = 0;  // pairs: layers of the largest group
  int64_t num_blocks = 0;   // the null block included
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t block_size = 0;
  int32_t dtype = -1;  // torch's ScalarType code

  int64_t token_width() const { return kv_token_width(dtype, head_dim); }
  int64_t bytes_per_block() const;  // over all tensors, K and V
};

// Address space is reserved for all blocks; pages become resident when a block is first written.
class KVCacheMemory {
 public:
  // RESOURCE_EXHAUSTED with the size if the address space cannot be reserved.
  static Result<std::unique_ptr<KVCacheMemory>> create(const KVCacheShape& shape);

  ~KVCacheMemory();
  KVCacheMemory(const KVCacheMemory&) = delete;
  KVCacheMemory& operator=(const KVCacheMemory&) = delete;

  const KVCacheShape& shape() const { return shape_; }
  void* k(int32_t tensor) const { return base_ + tensor * 2 * tensor_bytes_; }  // [N, KH, W, BS]
  void* v(int32_t tensor) const {
    return base_ + (tensor * 2 + 1) * tensor_bytes_;
  }  // [N, KH, BS, W]

 private:
  KVCacheMemory(const KVCacheShape& shape, char* base, int64_t tensor_bytes, size_t total)
      : shape_(shape), base_(base), tensor_bytes_(tensor_bytes), total_bytes_(total) {}

  KVCacheShape shape_;
  char* base_;
  int64_t tensor_bytes_;  // of one K or V, rounded up to pages
  size_t total_bytes_;
};

}  // namespace pinfer
