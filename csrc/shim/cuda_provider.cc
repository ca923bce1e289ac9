// The native provider for CUDA: tensor handles of our own over device memory, our ops, and what
// artifacts call of CUDA itself.
#include <utility>

#include "csrc/shim/cuda_device.h"
#include "csrc/shim/cuda_memory.h"
#include "csrc/shim/cuda_op_shims.h"
#include "csrc/shim/cuda_runtime.h"
#include "csrc/shim/handle_recorder.h"
#include "csrc/shim/provider.h"

namespace pinfer {
namespace {

// All work of a process is on one device and one stream, which is the one that parts are given:
// there is nothing to guard.
AOTITorchError create_guard(int32_t, void** guard) {
  static char only;
  *guard = &only;
  return 0;
}

AOTITorchError create_stream_guard(void*, int32_t device_index, void** guard) {
  return create_guard(device_index, guard);
}

AOTITorchError set_guard_index(void*, int32_t) { return 0; }

AOTITorchError delete_guard(void*) { return 0; }

// A container warns where a constant is missing in an update; the engine has compared them.
void warn(const char*, const char*, uint32_t, const char*) {}

const std::pair<std::string_view, void*> kGuards[] = {
    // Strides are kept by clone, too.
    {"aoti_torch_clone_preserve_strides", reinterpret_cast<void*>(&DeviceTensors::clone)},
    {"aoti_torch_create_cuda_guard", reinterpret_cast<void*>(&create_guard)},
    {"aoti_torch_create_cuda_stream_guard", reinterpret_cast<void*>(&create_stream_guard)},
    {"aoti_torch_cuda_guard_set_index", reinterpret_cast<void*>(&set_guard_index)},
    {"aoti_torch_delete_cuda_guard", reinterpret_cast<void*>(&delete_guard)},
    {"aoti_torch_delete_cuda_stream_guard", reinterpret_cast<void*>(&delete_guard)},
    {"aoti_torch_warn", reinterpret_cast<void*>(&warn)},
};

class CudaProvider final : public ShimProvider {
 public:
  std::string_view name() const override { return "native"; }
  const TensorFunctions& tensor_functions() const override { return functions_; }
  int32_t device_type() const override { return AOTI_DEVICE_CUDA; }
  const char* device() const override { return "cuda:0"; }
  AOTInductorStreamHandle stream() const override {
    CudaDevice* device = CudaDevice::current();
    return static_cast<AOTInductorStreamHandle>(device == nullptr ? nullptr : device->stream());
  }

  void* find(std::string_view symbol) const override {
    if (void* op = find_cuda_op_shim(symbol)) return op;
    if (void* function = find_cuda_function(symbol)) return function;
    if (symbol == "aoti_torch_new_tensor_handle") {
      return reinterpret_cast<void*>(&HandleRecorder::new_tensor_handle<CudaProvider>);
    }
    for (const auto& [name, function] : kGuards) {
      if (name == symbol) return function;
    }
    return DeviceTensors::find(symbol);
  }

  static const TensorFunctions& functions() { return functions_; }

 private:
  static constexpr TensorFunctions functions_ = DeviceTensors::functions();
};

}  // namespace

const ShimProvider& cuda_provider() {
  static const CudaProvider provider;
  return provider;
}

}  // namespace pinfer
