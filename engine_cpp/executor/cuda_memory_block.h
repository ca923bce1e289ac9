// Memory of the device, or of the host for its copies, that is freed at the end of its life.
#pragma once

#include <memory>
#include <utility>

#include "core/status.h"
#include "csrc/ops.h"
#include "csrc/shim/cuda_device.h"

namespace pinfer {

// An error of csrc/ops.h as a Status.
inline Status cuda_status(int32_t error) {
  if (error == PINFER_OPS_OK) return Status();
  return error == PINFER_OPS_OUT_OF_MEMORY ? Status::resource_exhausted(pinfer_ops_last_error())
                                           : Status::internal(pinfer_ops_last_error());
}

class CudaMemoryBlock {
 public:
  CudaMemoryBlock() = default;
  // `what` is named where there is no memory.
  static Result<CudaMemoryBlock> allocate(std::shared_ptr<CudaDevice> device, size_t bytes,
                                          const char* what) {
    CudaMemoryBlock block(std::move(device), bytes, false);
    PINFER_RETURN_IF_ERROR(cuda_status(block.device_->allocate(bytes, what, &block.data_)));
    return block;
  }
  static Result<CudaMemoryBlock> allocate_pinned(std::shared_ptr<CudaDevice> device, size_t bytes) {
    CudaMemoryBlock block(std::move(device), bytes, true);
    PINFER_RETURN_IF_ERROR(cuda_status(block.device_->allocate_pinned(bytes, &block.data_)));
    return block;
  }
  CudaMemoryBlock(CudaMemoryBlock&& other) noexcept { *this = std::move(other); }
  CudaMemoryBlock& operator=(CudaMemoryBlock&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(is_pinned_, other.is_pinned_);
    return *this;
  }
  ~CudaMemoryBlock() {
    if (data_ == nullptr) return;
    is_pinned_ ? device_->free_pinned(data_) : device_->free(data_);
  }

  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  CudaMemoryBlock(std::shared_ptr<CudaDevice> device, size_t bytes, bool is_pinned)
      : device_(std::move(device)), bytes_(bytes), is_pinned_(is_pinned) {}

  std::shared_ptr<CudaDevice> device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  bool is_pinned_ = false;
};

}  // namespace pinfer
