// A tensor handle that is given back to its provider at the end of its life.
#pragma once

#include <utility>

#include "csrc/shim/provider.h"

namespace pinfer {

class TensorHandle {
 public:
  TensorHandle() = default;
  TensorHandle(const TensorFunctions* functions, AtenTensorHandle handle)
      : functions_(functions), handle_(handle) {}
  TensorHandle(TensorHandle&& other) noexcept
      : functions_(other.functions_), handle_(std::exchange(other.handle_, nullptr)) {}
  TensorHandle& operator=(TensorHandle&& other) noexcept {
    std::swap(functions_, other.functions_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~TensorHandle() {
    if (handle_ != nullptr) functions_->delete_tensor_object(handle_);
  }

  // Still owned by this.
  AtenTensorHandle handle() const { return handle_; }

  // Given away.
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

  // The first element; nullptr without a tensor.
  void* data() const {
    void* data = nullptr;
    if (handle_ != nullptr) functions_->get_data_ptr(handle_, &data);
    return data;
  }

 private:
  const TensorFunctions* functions_ = nullptr;
  AtenTensorHandle handle_ = nullptr;
};

}  // namespace pinfer
