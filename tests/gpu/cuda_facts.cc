// Prints what the binary interface depends on of CUDA's headers, whichever are found: sizes of
// functions' parameters, values, layouts. For test_cuda_headers.py.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>

template <typename R, typename... P>
void print(const char* name, R (*)(P...)) {
  std::printf("%s %zu:", name, sizeof(R));
  ((std::printf(" %zu", sizeof(P))), ...);
  std::printf("\n");
}

#define FUNCTION(name) print(#name, &name);
#define VALUE(name) std::printf("%s = %d\n", #name, static_cast<int>(name));

int main() {
  FUNCTION(cuGetErrorString)
  FUNCTION(cuModuleLoad)
  FUNCTION(cuModuleLoadData)
  FUNCTION(cuModuleUnload)
  FUNCTION(cuModuleGetFunction)
  FUNCTION(cuFuncSetAttribute)
  FUNCTION(cuLaunchKernel)
  FUNCTION(cudaGetErrorString)
  FUNCTION(cudaGetLastError)
  FUNCTION(cudaGetDevice)
  FUNCTION(cudaSetDevice)
  FUNCTION(cudaFree)
  FUNCTION(cudaMemcpy)
  FUNCTION(cudaMemcpyAsync)
  FUNCTION(cudaPointerGetAttributes)
  FUNCTION(cudaEventDestroy)
  FUNCTION(cudaEventQuery)
  FUNCTION(cudaEventRecord)
  FUNCTION(cudaEventSynchronize)
  FUNCTION(cudaStreamSynchronize)
  print("cudaMalloc", static_cast<cudaError_t (*)(void**, size_t)>(&cudaMalloc));
  print("cudaEventCreate", static_cast<cudaError_t (*)(cudaEvent_t*)>(&cudaEventCreate));
  VALUE(CUDA_SUCCESS)
  VALUE(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
  VALUE(cudaSuccess)
  VALUE(cudaErrorNotReady)
  VALUE(cudaMemcpyHostToHost)
  VALUE(cudaMemcpyHostToDevice)
  VALUE(cudaMemcpyDeviceToHost)
  VALUE(cudaMemcpyDeviceToDevice)
  VALUE(cudaMemcpyDefault)
  VALUE(cudaMemoryTypeDevice)
  VALUE(sizeof(CUdeviceptr))
  VALUE(sizeof(cudaPointerAttributes))
  VALUE(offsetof(cudaPointerAttributes, type))
  VALUE(offsetof(cudaPointerAttributes, device))
  VALUE(offsetof(cudaPointerAttributes, devicePointer))
  VALUE(offsetof(cudaPointerAttributes, hostPointer))
}
