#include "csrc/shim/cuda_runtime.h"

#include <cstdint>
#include <utility>

#include "csrc/ops.h"
#include "csrc/ops_error.h"
#include "csrc/shim/cuda_device.h"

namespace pinfer {
namespace {

// Errors have the same numbers in both interfaces. A reason with numbers stands in
// pinfer_ops_last_error(), which the engine adds to what the artifact says.
constexpr int32_t kNoBinaryForGpu = 209;
constexpr unsigned kWithoutTimes = 2;  // of an event

thread_local int32_t last_error = kCudaSuccess;

CudaDevice& device() { return *CudaDevice::current(); }

int32_t remember(int32_t result) {
  if (result != kCudaSuccess) last_error = result;
  return result;
}

int32_t answer(const char* what, int32_t result) {
  device().check(result, what);
  return remember(result);
}

// An op's error as a driver's.
int32_t from_op(int32_t error, int32_t otherwise) {
  return remember(error == PINFER_OPS_OK              ? kCudaSuccess
                  : error == PINFER_OPS_OUT_OF_MEMORY ? kCudaOutOfMemory
                                                      : otherwise);
}

// ---- driver ----

int32_t module_load(CudaHandle* module, const void* image) {
  return from_op(device().load_module(image, module), kNoBinaryForGpu);
}

int32_t module_unload(CudaHandle module) {
  return from_op(device().unload_module(module), kCudaInvalidValue);
}

int32_t module_function(CudaHandle* function, CudaHandle module, const char* name) {
  return answer("cuModuleGetFunction", device().driver().module_function(function, module, name));
}

int32_t function_set(CudaHandle function, int32_t attribute, int value) {
  return answer("cuFuncSetAttribute", device().driver().function_set(function, attribute, value));
}

int32_t launch(CudaHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
               CudaHandle stream, void** parameters, void** extra) {
  // Nothing to do for no rows; the driver refuses such a grid.
  if (grid_x == 0 || grid_y == 0 || grid_z == 0) return kCudaSuccess;
  return answer("cuLaunchKernel",
                device().driver().launch(function, grid_x, grid_y, grid_z, block_x, block_y,
                                         block_z, shared_bytes, stream, parameters, extra));
}

int32_t error_text(int32_t error, const char** text) {
  return device().driver().error_text(error, text);
}

// ---- runtime ----

const char* error_string(int32_t error) {
  const char* text = nullptr;
  if (device().driver().error_text(error, &text) != kCudaSuccess || text == nullptr) {
    return "unknown error";
  }
  return text;
}

int32_t get_last_error() { return std::exchange(last_error, kCudaSuccess); }

int32_t get_device(int* ordinal) {
  *ordinal = 0;
  return from_op(device().make_current(), kCudaInvalidValue);
}

// Artifacts know of one device, which they call 0.
int32_t set_device(int ordinal) {
  if (ordinal != 0) return remember(kCudaInvalidValue);
  return from_op(device().make_current(), kCudaInvalidValue);
}

int32_t memory_alloc(void** memory, size_t bytes) {
  return from_op(device().allocate(bytes, "an artifact's constants", memory), kCudaInvalidValue);
}

int32_t memory_free(void* memory) {
  device().free(memory);
  return kCudaSuccess;
}

// Any direction: addresses of host and device differ.
int32_t memory_copy(void* to, const void* from, size_t bytes, int32_t) {
  return answer("cuMemcpy", device().driver().copy(reinterpret_cast<CudaAddress>(to),
                                                   reinterpret_cast<CudaAddress>(from), bytes));
}

int32_t event_create(CudaHandle* event) {
  return answer("cuEventCreate", device().driver().event_create(event, kWithoutTimes));
}

int32_t event_destroy(CudaHandle event) {
  return answer("cuEventDestroy", device().driver().event_destroy(event));
}

int32_t event_query(CudaHandle event) {
  const int32_t result = device().driver().event_query(event);
  return result == kCudaNotReady ? result : answer("cuEventQuery", result);
}

int32_t event_record(CudaHandle event, CudaHandle stream) {
  return answer("cuEventRecord", device().driver().event_record(event, stream));
}

int32_t event_synchronize(CudaHandle event) {
  return answer("cuEventSynchronize", device().driver().event_synchronize(event));
}

template <typename Function>
std::pair<std::string_view, void*> entry(std::string_view name, Function function) {
  return {name, reinterpret_cast<void*>(function)};
}

const std::pair<std::string_view, void*> kFunctions[] = {
    entry("cuFuncSetAttribute", &function_set),
    entry("cuGetErrorString", &error_text),
    entry("cuLaunchKernel", &launch),
    entry("cuModuleGetFunction", &module_function),
    entry("cuModuleLoadData", &module_load),
    entry("cuModuleUnload", &module_unload),
    entry("cudaEventCreate", &event_create),
    entry("cudaEventDestroy", &event_destroy),
    entry("cudaEventQuery", &event_query),
    entry("cudaEventRecord", &event_record),
    entry("cudaEventSynchronize", &event_synchronize),
    entry("cudaFree", &memory_free),
    entry("cudaGetDevice", &get_device),
    entry("cudaGetErrorString", &error_string),
    entry("cudaGetLastError", &get_last_error),
    entry("cudaMalloc", &memory_alloc),
    entry("cudaMemcpy", &memory_copy),
    entry("cudaSetDevice", &set_device),
};

}  // namespace

void* find_cuda_function(std::string_view symbol) {
  for (const auto& [name, function] : kFunctions) {
    if (name == symbol) return function;
  }
  return nullptr;
}

}  // namespace pinfer
