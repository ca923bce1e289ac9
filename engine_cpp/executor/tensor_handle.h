// A tensor handle that is given back to its provider at the end of its life.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
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

// Up to four dimensions of numbers that lie one after another.
struct ContiguousShape {
  // REQUIRES at most four dimensions.
  explicit ContiguousShape(std::initializer_list<int64_t> dimensions)
      : ndim(static_cast<int64_t>(dimensions.size())) {
    std::copy(dimensions.begin(), dimensions.end(), sizes);
    int64_t stride = 1;
    for (int64_t i = ndim; i-- > 0;) {
      strides[i] = stride;
      stride *= sizes[i];
    }
  }

  int64_t ndim;
  int64_t sizes[4];
  int64_t strides[4];
};

// A handle over memory that stays the caller's.
inline AtenTensorHandle wrap_contiguous(const TensorFunctions& functions, void* data,
                                        std::initializer_list<int64_t> sizes, int32_t dtype,
                                        int32_t device_type) {
  const ContiguousShape shape(sizes);
  AtenTensorHandle handle = nullptr;
  functions.create_tensor_from_blob(data, shape.ndim, shape.sizes, shape.strides, 0, dtype,
                                    device_type, 0, &handle);
  return handle;
}

}  // namespace pinfer
