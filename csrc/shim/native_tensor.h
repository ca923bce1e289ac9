// Tensor handles of our own, enough of torch's shim for what Inductor generates around custom ops
// and fused loops. Strided tensors only; where their memory lies is the Memory's business.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>
#include <utility>

#include "csrc/shim/aoti.h"
#include "csrc/shim/provider.h"

namespace pinfer {

inline constexpr int kMaxDims = 8;
inline constexpr AOTITorchError kSuccess = 0;
inline constexpr AOTITorchError kFailure = 1;

// Memory that tensors share. Handles may be copied on one thread and dropped on another.
struct Storage {
  void* data;
  std::atomic<int32_t> num_references{1};
};

}  // namespace pinfer

struct AtenTensorOpaque {
  char* data;                // first element
  pinfer::Storage* storage;  // nullptr: the memory is the caller's
  int64_t storage_offset;    // in elements
  int64_t storage_bytes;
  int32_t dtype;
  int32_t ndim;
  int64_t sizes[pinfer::kMaxDims];
  int64_t strides[pinfer::kMaxDims];
};

namespace pinfer {

using Tensor = AtenTensorOpaque;

inline int64_t item_size(int32_t dtype) {
  switch (dtype) {
    case AOTI_DTYPE_INT64:
    case AOTI_DTYPE_FLOAT64:
      return 8;
    case AOTI_DTYPE_INT32:
    case AOTI_DTYPE_FLOAT32:
      return 4;
    case AOTI_DTYPE_INT16:
    case AOTI_DTYPE_FLOAT16:
    case AOTI_DTYPE_BFLOAT16:
      return 2;
    case AOTI_DTYPE_UINT8:
    case AOTI_DTYPE_INT8:
    case AOTI_DTYPE_BOOL:
      return 1;
    default:
      return 0;
  }
}

// Handles are made and dropped some sixty times per layer and step: they are kept for reuse.
class HandleCache {
 public:
  ~HandleCache() {
    for (int i = 0; i < size_; ++i) delete handles_[i];
  }
  Tensor* take() {
    if (size_ > 0) return handles_[--size_];
    return new (std::nothrow) Tensor;
  }
  void give(Tensor* tensor) {
    if (size_ < static_cast<int>(handles_.size())) {
      handles_[size_++] = tensor;
    } else {
      delete tensor;
    }
  }

 private:
  std::array<Tensor*, 64> handles_;
  int size_ = 0;
};

inline HandleCache& handle_cache() {
  static thread_local HandleCache cache;
  return cache;
}

// Memory is a type with
//   static constexpr int32_t kDeviceType;
//   static void* allocate(size_t bytes);  // nullptr if memory is out
//   static void free(void* memory);
//   static bool copy(void* to, const void* from, size_t bytes);
template <typename Memory>
class NativeTensors {
 public:
  static void release_storage(Storage* storage) {
    if (storage == nullptr) return;
    if (storage->num_references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      Memory::free(storage->data);
      delete storage;
    }
  }

  // Sets shape and data of a handle; false for shapes that the handle cannot hold.
  static bool set_shape(Tensor* tensor, char* base, int64_t ndim, const int64_t* sizes,
                        const int64_t* strides, int64_t storage_offset) {
    if (ndim < 0 || ndim > kMaxDims) return false;
    tensor->ndim = static_cast<int32_t>(ndim);
    for (int64_t i = 0; i < ndim; ++i) {
      tensor->sizes[i] = sizes[i];
      tensor->strides[i] = strides[i];
    }
    tensor->storage_offset = storage_offset;
    tensor->data = base + storage_offset * item_size(tensor->dtype);
    return true;
  }

  static char* storage_base(const Tensor* tensor) {
    return tensor->data - tensor->storage_offset * item_size(tensor->dtype);
  }

  // Elements from the first to the last that a shape addresses.
  static int64_t extent(int64_t ndim, const int64_t* sizes, const int64_t* strides) {
    int64_t last = 0;
    for (int64_t i = 0; i < ndim; ++i) {
      if (sizes[i] == 0) return 0;
      last += (sizes[i] - 1) * strides[i];
    }
    return last + 1;
  }

  static AOTITorchError get_data_ptr(AtenTensorHandle tensor, void** result) {
    *result = tensor->data;
    return kSuccess;
  }

  static AOTITorchError get_storage_size(AtenTensorHandle tensor, int64_t* result) {
    *result = tensor->storage_bytes;
    return kSuccess;
  }

  static AOTITorchError get_storage_offset(AtenTensorHandle tensor, int64_t* result) {
    *result = tensor->storage_offset;
    return kSuccess;
  }

  static AOTITorchError get_dim(AtenTensorHandle tensor, int64_t* result) {
    *result = tensor->ndim;
    return kSuccess;
  }

  static AOTITorchError get_numel(AtenTensorHandle tensor, int64_t* result) {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor->ndim; ++i) count *= tensor->sizes[i];
    *result = count;
    return kSuccess;
  }

  static AOTITorchError get_sizes(AtenTensorHandle tensor, int64_t** result) {
    *result = tensor->sizes;
    return kSuccess;
  }

  static AOTITorchError get_size(AtenTensorHandle tensor, int64_t dim, int64_t* result) {
    if (dim < 0 || dim >= tensor->ndim) return kFailure;
    *result = tensor->sizes[dim];
    return kSuccess;
  }

  static AOTITorchError get_strides(AtenTensorHandle tensor, int64_t** result) {
    *result = tensor->strides;
    return kSuccess;
  }

  static AOTITorchError get_stride(AtenTensorHandle tensor, int64_t dim, int64_t* result) {
    if (dim < 0 || dim >= tensor->ndim) return kFailure;
    *result = tensor->strides[dim];
    return kSuccess;
  }

  static AOTITorchError get_dtype(AtenTensorHandle tensor, int32_t* result) {
    *result = tensor->dtype;
    return kSuccess;
  }

  static AOTITorchError get_device_type(AtenTensorHandle, int32_t* result) {
    *result = Memory::kDeviceType;
    return kSuccess;
  }

  static AOTITorchError get_device_index(AtenTensorHandle, int32_t* result) {
    *result = 0;
    return kSuccess;
  }

  static AOTITorchError get_layout(AtenTensorHandle, int32_t* result) {
    *result = AOTI_LAYOUT_STRIDED;
    return kSuccess;
  }

  static AOTITorchError delete_tensor_object(AtenTensorHandle tensor) {
    if (tensor == nullptr) return kSuccess;
    release_storage(tensor->storage);
    handle_cache().give(tensor);
    return kSuccess;
  }

  // A second handle over the same memory.
  static AOTITorchError new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* result) {
    Tensor* copy = handle_cache().take();
    if (copy == nullptr) return kFailure;
    *copy = *tensor;
    if (copy->storage != nullptr) {
      copy->storage->num_references.fetch_add(1, std::memory_order_relaxed);
    }
    *result = copy;
    return kSuccess;
  }

  static AOTITorchError empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                      int32_t dtype, int32_t device_type, int32_t,
                                      AtenTensorHandle* result) {
    const int64_t item = item_size(dtype);
    if (device_type != Memory::kDeviceType || item == 0) return kFailure;
    Tensor* tensor = handle_cache().take();
    if (tensor == nullptr) return kFailure;
    tensor->dtype = dtype;
    const size_t bytes = static_cast<size_t>(extent(ndim, sizes, strides) * item);
    void* data = Memory::allocate(bytes);
    tensor->storage = data == nullptr ? nullptr : new (std::nothrow) Storage{data};
    if (tensor->storage == nullptr ||
        !set_shape(tensor, static_cast<char*>(data), ndim, sizes, strides, 0)) {
      if (tensor->storage != nullptr) {
        release_storage(tensor->storage);
      } else if (data != nullptr) {
        Memory::free(data);
      }
      handle_cache().give(tensor);
      return kFailure;
    }
    tensor->storage_bytes = static_cast<int64_t>(bytes);
    *result = tensor;
    return kSuccess;
  }

  static AOTITorchError create_tensor_from_blob(void* data, int64_t ndim, const int64_t* sizes,
                                                const int64_t* strides, int64_t storage_offset,
                                                int32_t dtype, int32_t device_type, int32_t,
                                                AtenTensorHandle* result) {
    const int64_t item = item_size(dtype);
    if (device_type != Memory::kDeviceType || item == 0) return kFailure;
    Tensor* tensor = handle_cache().take();
    if (tensor == nullptr) return kFailure;
    tensor->dtype = dtype;
    tensor->storage = nullptr;
    if (!set_shape(tensor, static_cast<char*>(data), ndim, sizes, strides, storage_offset)) {
      handle_cache().give(tensor);
      return kFailure;
    }
    tensor->storage_bytes = (storage_offset + extent(ndim, sizes, strides)) * item;
    *result = tensor;
    return kSuccess;
  }

  static AOTITorchError create_tensor_from_blob_v2(void* data, int64_t ndim, const int64_t* sizes,
                                                   const int64_t* strides, int64_t storage_offset,
                                                   int32_t dtype, int32_t device_type,
                                                   int32_t device_index, AtenTensorHandle* result,
                                                   int32_t layout, const uint8_t*, int64_t) {
    if (layout != AOTI_LAYOUT_STRIDED) return kFailure;
    return create_tensor_from_blob(data, ndim, sizes, strides, storage_offset, dtype, device_type,
                                   device_index, result);
  }

  // A view with other sizes and strides; the offset counts from the start of the storage.
  static AOTITorchError reinterpret_tensor(AtenTensorHandle tensor, int64_t ndim,
                                           const int64_t* sizes, const int64_t* strides,
                                           int64_t storage_offset, AtenTensorHandle* result) {
    if (new_tensor_handle(tensor, result) != kSuccess) return kFailure;
    if (!set_shape(*result, storage_base(tensor), ndim, sizes, strides, storage_offset)) {
      delete_tensor_object(*result);
      return kFailure;
    }
    return kSuccess;
  }

  static AOTITorchError as_strided(AtenTensorHandle tensor, const int64_t* sizes,
                                   const int64_t* strides, AtenTensorHandle* result) {
    return reinterpret_tensor(tensor, tensor->ndim, sizes, strides, tensor->storage_offset, result);
  }

  // Strides are kept, so the addressed range is copied as it lies.
  static AOTITorchError clone(AtenTensorHandle tensor, AtenTensorHandle* result) {
    if (empty_strided(tensor->ndim, tensor->sizes, tensor->strides, tensor->dtype,
                      Memory::kDeviceType, 0, result) != kSuccess) {
      return kFailure;
    }
    if (!Memory::copy((*result)->data, tensor->data,
                      static_cast<size_t>((*result)->storage_bytes))) {
      delete_tensor_object(*result);
      return kFailure;
    }
    return kSuccess;
  }

  static bool grad_mode_is_enabled() { return false; }
  static void grad_mode_set_enabled(bool) {}

  static constexpr TensorFunctions functions() {
    return {
        &create_tensor_from_blob,
        &empty_strided,
        &new_tensor_handle,
        &delete_tensor_object,
        &get_data_ptr,
        &get_dim,
        &get_sizes,
        &get_strides,
        &get_dtype,
    };
  }

  // The function behind a name that an artifact binds; nullptr if there is none.
  static void* find(std::string_view symbol) {
    const auto entry = [](std::string_view name, auto function) {
      return std::pair(name, reinterpret_cast<void*>(function));
    };
    static const std::pair<std::string_view, void*> kFunctions[] = {
        entry("aoti_torch__reinterpret_tensor", &reinterpret_tensor),
        entry("aoti_torch_as_strided", &as_strided),
        entry("aoti_torch_clone", &clone),
        entry("aoti_torch_create_tensor_from_blob", &create_tensor_from_blob),
        entry("aoti_torch_create_tensor_from_blob_v2", &create_tensor_from_blob_v2),
        entry("aoti_torch_delete_tensor_object", &delete_tensor_object),
        entry("aoti_torch_empty_strided", &empty_strided),
        entry("aoti_torch_get_data_ptr", &get_data_ptr),
        entry("aoti_torch_get_device_index", &get_device_index),
        entry("aoti_torch_get_device_type", &get_device_type),
        entry("aoti_torch_get_dim", &get_dim),
        entry("aoti_torch_get_dtype", &get_dtype),
        entry("aoti_torch_get_layout", &get_layout),
        entry("aoti_torch_get_numel", &get_numel),
        entry("aoti_torch_get_size", &get_size),
        entry("aoti_torch_get_sizes", &get_sizes),
        entry("aoti_torch_get_storage_offset", &get_storage_offset),
        entry("aoti_torch_get_storage_size", &get_storage_size),
        entry("aoti_torch_get_stride", &get_stride),
        entry("aoti_torch_get_strides", &get_strides),
        entry("aoti_torch_grad_mode_is_enabled", &grad_mode_is_enabled),
        entry("aoti_torch_grad_mode_set_enabled", &grad_mode_set_enabled),
    };
    for (const auto& [name, function] : kFunctions) {
      if (name == symbol) return function;
    }
    return nullptr;
  }
};

}  // namespace pinfer
