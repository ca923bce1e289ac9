// The CUDA driver, opened at run time: a program needs no CUDA to start, and tests put a driver of
// their own in its place (tests/cuda). Nothing else of CUDA is opened by us: what artifacts call of
// CUDA's runtime library is made of these functions (cuda_runtime.h).
//
// Declared in our own words, with the driver's names and versions of its binary interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfer {

using CudaAddress = uint64_t;  // a CUdeviceptr
using CudaHandle = void*;      // a context, stream, event, module, function or graph
inline constexpr int32_t kCudaSuccess = 0;
inline constexpr int32_t kCudaInvalidValue = 1;
inline constexpr int32_t kCudaOutOfMemory = 2;
inline constexpr int32_t kCudaNoDevice = 100;
inline constexpr int32_t kCudaNotReady = 600;

// CUdevice_attribute, as far as it is used.
inline constexpr int32_t kCudaNumProcessors = 16;
inline constexpr int32_t kCudaCapabilityMajor = 75;
inline constexpr int32_t kCudaCapabilityMinor = 76;

// X(member, exported name, parameters); each returns a CUresult.
#define PINFER_CUDA_DRIVER_FUNCTIONS(X)                                                        \
  X(init, "cuInit", (unsigned flags))                                                          \
  X(driver_version, "cuDriverGetVersion", (int* version))                                      \
  X(error_name, "cuGetErrorName", (int32_t error, const char** name))                          \
  X(error_text, "cuGetErrorString", (int32_t error, const char** text))                        \
  X(device_count, "cuDeviceGetCount", (int* count))                                            \
  X(device_get, "cuDeviceGet", (int* device, int ordinal))                                     \
  X(device_name, "cuDeviceGetName", (char* name, int size, int device))                        \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, int device))         \
  X(context_retain, "cuDevicePrimaryCtxRetain", (CudaHandle * context, int device))            \
  X(context_release, "cuDevicePrimaryCtxRelease_v2", (int device))                             \
  X(context_set, "cuCtxSetCurrent", (CudaHandle context))                                      \
  X(memory_info, "cuMemGetInfo_v2", (size_t* free, size_t* total))                             \
  X(memory_alloc, "cuMemAlloc_v2", (CudaAddress * memory, size_t bytes))                       \
  X(memory_free, "cuMemFree_v2", (CudaAddress memory))                                         \
  X(host_alloc, "cuMemHostAlloc", (void** memory, size_t bytes, unsigned flags))               \
  X(host_free, "cuMemFreeHost", (void* memory))                                                \
  X(copy, "cuMemcpy", (CudaAddress to, CudaAddress from, size_t bytes))                        \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                    \
    (CudaAddress to, const void* from, size_t bytes, CudaHandle stream))                       \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                      \
    (void* to, CudaAddress from, size_t bytes, CudaHandle stream))                             \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                                    \
    (CudaAddress to, CudaAddress from, size_t bytes, CudaHandle stream))                       \
  X(memory_set, "cuMemsetD8Async",                                                             \
    (CudaAddress to, unsigned char value, size_t bytes, CudaHandle stream))                    \
  X(stream_create, "cuStreamCreate", (CudaHandle * stream, unsigned flags))                    \
  X(stream_destroy, "cuStreamDestroy_v2", (CudaHandle stream))                                 \
  X(stream_synchronize, "cuStreamSynchronize", (CudaHandle stream))                            \
  X(event_create, "cuEventCreate", (CudaHandle * event, unsigned flags))                       \
  X(event_destroy, "cuEventDestroy_v2", (CudaHandle event))                                    \
  X(event_record, "cuEventRecord", (CudaHandle event, CudaHandle stream))                      \
  X(event_query, "cuEventQuery", (CudaHandle event))                                           \
  X(event_synchronize, "cuEventSynchronize", (CudaHandle event))                               \
  X(module_load, "cuModuleLoadData", (CudaHandle * module, const void* image))                 \
  X(module_unload, "cuModuleUnload", (CudaHandle module))                                      \
  X(module_function, "cuModuleGetFunction",                                                    \
    (CudaHandle * function, CudaHandle module, const char* name))                              \
  X(function_set, "cuFuncSetAttribute", (CudaHandle function, int attribute, int value))       \
  X(launch, "cuLaunchKernel",                                                                  \
    (CudaHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CudaHandle stream,             \
     void** parameters, void** extra))                                                         \
  X(capture_begin, "cuStreamBeginCapture_v2", (CudaHandle stream, int mode))                   \
  X(capture_end, "cuStreamEndCapture", (CudaHandle stream, CudaHandle * graph))                \
  X(graph_instantiate, "cuGraphInstantiateWithFlags",                                          \
    (CudaHandle * executable, CudaHandle graph, unsigned long long flags))                     \
  X(graph_destroy, "cuGraphDestroy", (CudaHandle graph))                                       \
  X(graph_launch, "cuGraphLaunch", (CudaHandle executable, CudaHandle stream))                 \
  X(graph_executable_destroy, "cuGraphExecDestroy", (CudaHandle executable))

struct CudaDriver {
#define PINFER_MEMBER(member, name, parameters) int32_t(*member) parameters = nullptr;
  PINFER_CUDA_DRIVER_FUNCTIONS(PINFER_MEMBER)
#undef PINFER_MEMBER

  // Null, and why, if the library cannot be opened or lacks a function. Stays open for the life of
  // the process, as drivers want it.
  static std::unique_ptr<CudaDriver> open(const std::string& library, std::string* error);

  // "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
  std::string describe(int32_t error) const;
};

}  // namespace pinfer
