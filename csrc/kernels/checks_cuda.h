// Checks that several launchers share.
#pragma once

#include <cstdint>

#include "csrc/kernels/kernels_cuda.h"
#include "csrc/ops_error.h"

namespace pinfer::cuda {

inline long long number(int64_t x) { return x; }

inline bool is_activation(int32_t dtype) {
  return dtype == PINFER_FLOAT32 || dtype == PINFER_BFLOAT16 || dtype == PINFER_FLOAT16;
}

inline bool is_aligned(const void* p, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

inline int32_t check_activation(const char* op, const char* name, int32_t dtype) {
  PINFER_OPS_CHECK(is_activation(dtype),
                   "%s: %s must be float32 (6), bfloat16 (15) or float16 (5), got %d", op, name,
                   dtype);
  return PINFER_OPS_OK;
}

int32_t check_weight(const char* op, const Weight& weight);
int32_t check_cache(const char* op, const KVCache& cache);

}  // namespace pinfer::cuda
