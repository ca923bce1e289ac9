// The custom ops as artifacts for CUDA call them: checks that the handles hold what the kernels are
// told, then starts those (csrc/kernels/kernels_cuda.h) on the device's stream.
#pragma once

#include <cstdint>
#include <string_view>

#include "csrc/kernels/kernels_cuda.h"

namespace pinfer {

// The weight behind a packed tensor (runtime/cuda_weight_format.py): its parts, where they lie.
cuda::Weight cuda_weight(const void* data, int32_t format, int64_t group_size, int64_t out_features,
                         int64_t in_features);

// Bytes of such a tensor; 0 if there is no such format.
int64_t cuda_weight_bytes(int32_t format, int64_t group_size, int64_t out_features,
                          int64_t in_features);

// The shim of a custom op by the name that artifacts bind; nullptr if there is no such op.
void* find_cuda_op_shim(std::string_view symbol);

}  // namespace pinfer
