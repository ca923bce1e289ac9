// A provider stands behind the tensor functions (aoti_torch_*) of compiled artifacts. There are
// two: `native`, our own small tensor handles, and `torch`, a libtorch that is loaded at run time.
// The engine is one source for both: it sees tensors only through TensorFunctions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/shim/aoti.h"

namespace pinfer {

// The tensor functions that the engine and the custom ops call themselves. Handles made by one
// provider's functions must only be given to the same provider's.
struct TensorFunctions {
  AOTITorchError (*create_tensor_from_blob)(void* data, int64_t ndim, const int64_t* sizes,
                                            const int64_t* strides, int64_t storage_offset,
                                            int32_t dtype, int32_t device_type,
                                            int32_t device_index, AtenTensorHandle* result);
  AOTITorchError (*empty_strided)(int64_t ndim, const int64_t* sizes, const int64_t* strides,
                                  int32_t dtype, int32_t device_type, int32_t device_index,
                                  AtenTensorHandle* result);
  AOTITorchError (*new_tensor_handle)(AtenTensorHandle tensor, AtenTensorHandle* result);
  AOTITorchError (*delete_tensor_object)(AtenTensorHandle tensor);
  AOTITorchError (*get_data_ptr)(AtenTensorHandle tensor, void** result);
  AOTITorchError (*get_dim)(AtenTensorHandle tensor, int64_t* result);
  AOTITorchError (*get_sizes)(AtenTensorHandle tensor, int64_t** result);
  AOTITorchError (*get_strides)(AtenTensorHandle tensor, int64_t** result);
  AOTITorchError (*get_dtype)(AtenTensorHandle tensor, int32_t* result);
};

// Immutable after construction; may be shared by threads and engines.
class ShimProvider {
 public:
  virtual ~ShimProvider() = default;

  virtual std::string_view name() const = 0;

  // "2.13" of a provider that serves artifacts of that version of torch only; "" of any.
  virtual std::string_view torch_version() const { return ""; }

  virtual const TensorFunctions& tensor_functions() const = 0;

  // Where its tensors lie: a c10::DeviceType, and the device as containers are told it.
  virtual int32_t device_type() const { return AOTI_DEVICE_CPU; }
  virtual const char* device() const { return "cpu"; }

  // What parts run on; nullptr on the CPU.
  virtual AOTInductorStreamHandle stream() const { return nullptr; }

  // The function behind a name that an artifact binds; nullptr if this provider has none.
  virtual void* find(std::string_view symbol) const = 0;
};

// The provider without dependencies. Lives as long as the process.
const ShimProvider& native_provider();

// The same names over device memory and the CUDA driver, for artifacts that are compiled for CUDA.
// Everything behind it belongs to CudaDevice::current(), which must be open while it is used. Lives
// as long as the process.
const ShimProvider& cuda_provider();

// libtorch as provider, opened by the first call: the one that the process has loaded already, else
// libtorch_cpu.so from PINFER_TORCH_LIB (a directory or the file), else from the site-packages that
// this program or library lies in. nullptr, and why, if there is none. Any thread. Lives as long as
// the process.
const ShimProvider* torch_provider(std::string* error);

}  // namespace pinfer
