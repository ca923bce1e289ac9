#include "executor/kv_cache_memory.h"

#include <sys/mman.h>

#include <string>

#include "bundle/manifest.h"
#include "csrc/shim/aoti.h"

namespace pinfer {
namespace {

constexpr int64_t kPage = 4096;

int64_t tensor_block_bytes(const KVCacheShape& shape) {
  return shape.num_kv_heads * shape.token_width() * shape.block_size * dtype_size(shape.dtype);
}

}  // namespace

int64_t kv_token_width(int32_t dtype, int64_t head_dim) {
  constexpr int64_t kScaleBytes = 4;
  return dtype == AOTI_DTYPE_INT8 ? head_dim + kScaleBytes : head_dim;
}

int64_t KVCacheShape::bytes_per_block() const {
  return 2 * int64_t{num_tensors} * tensor_block_bytes(*this);
}

Result<std::unique_ptr<KVCacheMemory>> KVCacheMemory::create(const KVCacheShape& shape) {
  const int64_t tensor_bytes =
      (tensor_block_bytes(shape) * shape.num_blocks + kPage - 1) / kPage * kPage;
  const size_t total =
      static_cast<size_t>(tensor_bytes) * 2 * static_cast<size_t>(shape.num_tensors);
  constexpr int64_t kMaxBytes = int64_t{1} << 46;  // of address space
  if (shape.num_blocks > kMaxBytes / shape.bytes_per_block()) {
    return Status::resource_exhausted("--num-blocks " + std::to_string(shape.num_blocks) +
                                      ": more than fits the address space");
  }
  void* base = ::mmap(nullptr, total, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return Status::resource_exhausted("cannot reserve " + std::to_string(total >> 20) +
                                      " MiB for " + std::to_string(shape.num_blocks) +
                                      " cache blocks (--num-blocks)");
  }
  // A huge page would make two megabytes of each tensor resident with its first block.
  ::madvise(base, total, MADV_NOHUGEPAGE);
  return std::unique_ptr<KVCacheMemory>(
      new KVCacheMemory(shape, static_cast<char*>(base), tensor_bytes, total));
}

KVCacheMemory::~KVCacheMemory() { ::munmap(base_, total_bytes_); }

}  // namespace pinfer
