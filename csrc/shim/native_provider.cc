// The native provider for the CPU: tensor handles of our own over buffers of the step's arena.
#include <cstring>

#include "csrc/shim/buffer_arena.h"
#include "csrc/shim/handle_recorder.h"
#include "csrc/shim/native_tensor.h"
#include "csrc/shim/op_shims.h"
#include "csrc/shim/provider.h"
#include "csrc/threads/openmp.h"
#include "csrc/vector_math/vector_math.h"

namespace pinfer {
namespace {

struct HostMemory {
  static constexpr int32_t kDeviceType = AOTI_DEVICE_CPU;
  static void* allocate(size_t bytes) { return allocate_buffer(bytes); }
  static void free(void* memory) { free_buffer(memory); }
  static bool copy(void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return true;
  }
};

using HostTensors = NativeTensors<HostMemory>;

class NativeProvider final : public ShimProvider {
 public:
  std::string_view name() const override { return "native"; }

  const TensorFunctions& tensor_functions() const override { return functions_; }

  void* find(std::string_view symbol) const override {
    if (void* op = find_op_shim<NativeProvider>(symbol)) return op;
    if (symbol == "aoti_torch_new_tensor_handle") {
      return reinterpret_cast<void*>(&HandleRecorder::new_tensor_handle<NativeProvider>);
    }
    if (void* function = find_openmp_function(symbol)) return function;
    if (void* function = find_vector_function(symbol)) return function;
    return HostTensors::find(symbol);
  }

  static constexpr TensorFunctions functions_ = HostTensors::functions();
  static const TensorFunctions& functions() { return functions_; }
};

}  // namespace

const ShimProvider& native_provider() {
  static const NativeProvider provider;
  return provider;
}

}  // namespace pinfer
