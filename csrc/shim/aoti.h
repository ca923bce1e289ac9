// The C interface between a compiled artifact and its host, as torch 2.13 defines it, in our own
// words: nothing of ours is compiled against torch's headers. tests/export/test_aoti_header.py
// compares these declarations with torch's.
//
// - Tensor functions (aoti_torch_*): called by the artifact, provided by the host (see provider.h).
// - Container functions (AOTInductor*): exported by the artifact, called by the host.
//
// Every function returns 0 on success. Handles that a run is given are stolen; handles that it
// returns belong to the caller.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct AtenTensorOpaque;
typedef struct AtenTensorOpaque* AtenTensorHandle;
typedef int32_t AOTITorchError;

typedef struct AOTInductorModelContainerOpaque* AOTInductorModelContainerHandle;
typedef struct AOTInductorStreamOpaque* AOTInductorStreamHandle;
typedef struct AOTIProxyExecutorOpaque* AOTIProxyExecutorHandle;
typedef int32_t AOTIRuntimeError;

typedef struct AOTInductorConstantMapEntry {
  const char* name;
  AtenTensorHandle handle;
} AOTInductorConstantMapEntry;

// c10::ScalarType, c10::DeviceType and c10::Layout, as far as they are used.
enum {
  AOTI_DTYPE_UINT8 = 0,
  AOTI_DTYPE_INT8 = 1,
  AOTI_DTYPE_INT16 = 2,
  AOTI_DTYPE_INT32 = 3,
  AOTI_DTYPE_INT64 = 4,
  AOTI_DTYPE_FLOAT16 = 5,
  AOTI_DTYPE_FLOAT32 = 6,
  AOTI_DTYPE_FLOAT64 = 7,
  AOTI_DTYPE_BOOL = 11,
  AOTI_DTYPE_BFLOAT16 = 15,
  AOTI_DEVICE_CPU = 0,
  AOTI_DEVICE_CUDA = 1,
  AOTI_LAYOUT_STRIDED = 0
};

typedef AOTIRuntimeError (*AOTInductorModelContainerCreateWithDeviceFn)(
    AOTInductorModelContainerHandle* container_handle, size_t num_models, const char* device_str,
    const char* cubin_dir);
typedef AOTIRuntimeError (*AOTInductorModelContainerDeleteFn)(
    AOTInductorModelContainerHandle container_handle);
typedef AOTIRuntimeError (*AOTInductorModelContainerRunSingleThreadedFn)(
    AOTInductorModelContainerHandle container_handle, AtenTensorHandle* input_handles,
    size_t num_inputs, AtenTensorHandle* output_handles, size_t num_outputs,
    AOTInductorStreamHandle stream_handle, AOTIProxyExecutorHandle proxy_executor_handle);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetNumConstantsFn)(
    AOTInductorModelContainerHandle container_handle, size_t* num_constants);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetConstantOriginalFQNFn)(
    AOTInductorModelContainerHandle container_handle, size_t idx, const char** original_fqn);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetConstantDtypeFn)(
    AOTInductorModelContainerHandle container_handle, size_t idx, int32_t* dtype);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetConstantDataSizeFn)(
    AOTInductorModelContainerHandle container_handle, size_t idx, size_t* data_size);
typedef AOTIRuntimeError (*AOTInductorModelContainerUpdateUserManagedConstantBufferPairsFn)(
    AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry* pairs,
    size_t num_pairs, bool use_inactive, bool validate_full_update);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetNumInputsFn)(
    AOTInductorModelContainerHandle container_handle, size_t* num_inputs);
typedef AOTIRuntimeError (*AOTInductorModelContainerGetNumOutputsFn)(
    AOTInductorModelContainerHandle container_handle, size_t* num_outputs);
typedef AOTIRuntimeError (*AOTInductorGetLastErrorFn)(const char** error_msg);

#ifdef __cplusplus
}
#endif
