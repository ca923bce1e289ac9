"""Names that artifacts may ask for, by who provides them in the engine.

The same lists stand in csrc/shim (native_provider.cc, op_shims.cc), csrc/threads/openmp.cc and
csrc/vector_math; `tests/parity/test_symbols.py` compares them through libpinfer.
"""

from __future__ import annotations

# Ours with every provider: custom ops and OpenMP's entry points.
SHARED_SYMBOLS = frozenset(
    """aoti_torch_cpu_linear aoti_torch_cpu_moe aoti_torch_cpu_paged_attention
    GOMP_parallel GOMP_barrier
    omp_get_num_threads omp_get_thread_num omp_get_max_threads""".split()
)

# The native provider's own implementation of torch's shim.
NATIVE_SYMBOLS = frozenset(
    """aoti_torch__reinterpret_tensor aoti_torch_as_strided aoti_torch_clone
    aoti_torch_create_tensor_from_blob aoti_torch_create_tensor_from_blob_v2
    aoti_torch_delete_tensor_object aoti_torch_empty_strided aoti_torch_get_data_ptr
    aoti_torch_get_device_index aoti_torch_get_device_type aoti_torch_get_dim aoti_torch_get_dtype
    aoti_torch_get_layout aoti_torch_get_numel aoti_torch_get_size aoti_torch_get_sizes
    aoti_torch_get_storage_offset aoti_torch_get_storage_size aoti_torch_get_stride
    aoti_torch_get_strides aoti_torch_grad_mode_is_enabled aoti_torch_grad_mode_set_enabled
    aoti_torch_new_tensor_handle""".split()
)

# Vector functions of compiled loops, in 8 and 16 lanes.
VECTOR_FUNCTIONS = frozenset(
    f"Sleef_{name}f{lanes}_{accuracy}"
    for lanes in (8, 16)
    for name, accuracy in (
        ("exp", "u10"), ("log", "u10"), ("sin", "u10"), ("sin", "u35"), ("cos", "u10"),
        ("cos", "u35"), ("tanh", "u10"), ("erf", "u10"),
    )
)  # fmt: skip

# What provider `native` has on CUDA: our own ops, torch's shim over device memory, and CUDA's
# functions as the host code of artifacts calls them (csrc/shim/cuda_provider.cc).
CUDA_SYMBOLS = (
    frozenset(
        """aoti_torch_cuda_rotary_attention aoti_torch_cuda_row_linear
    aoti_torch_clone_preserve_strides aoti_torch_create_cuda_guard
    aoti_torch_create_cuda_stream_guard aoti_torch_cuda_guard_set_index
    aoti_torch_delete_cuda_guard aoti_torch_delete_cuda_stream_guard aoti_torch_warn
    cuFuncSetAttribute cuGetErrorString cuLaunchKernel cuModuleGetFunction cuModuleLoadData
    cuModuleUnload cudaEventCreate cudaEventDestroy cudaEventQuery cudaEventRecord
    cudaEventSynchronize cudaFree cudaGetDevice cudaGetErrorString cudaGetLastError cudaMalloc
    cudaMemcpy cudaSetDevice""".split()
    )
    | NATIVE_SYMBOLS
)
