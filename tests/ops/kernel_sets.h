// The kernels that this machine can run: those of its instruction sets, and the AVX-512 ones
// emulated by SIMDe where that is installed.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "csrc/kernels/kernels.h"
#include "csrc/vector_math/vector_math.h"

namespace pinfer {

struct KernelSet {
  std::string name;
  const LinearKernel* linear_float32;
  const LinearKernel* linear_bfloat16;
  const LinearKernel* linear_int8;
  const LinearKernel* linear_int4;
  const AttentionKernel* attention_float32;
  const AttentionKernel* attention_bfloat16;
  const AttentionKernel* attention_int8;
  const MoeKernel* moe;
};

inline std::ostream& operator<<(std::ostream& out, const KernelSet& set) { return out << set.name; }

std::vector<KernelSet> available_kernel_sets();

struct VectorFunctionSet {
  std::string name;
  const VectorFunctionTable* table;
};

inline std::ostream& operator<<(std::ostream& out, const VectorFunctionSet& set) {
  return out << set.name;
}

std::vector<VectorFunctionSet> available_vector_function_sets();

}  // namespace pinfer
