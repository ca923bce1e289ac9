#include <cmath>

#include "csrc/kernels/simd_portable.h"
// The templates below are over the Simd above.
#include "csrc/kernels/exp_kernel.h"

namespace pinfer {
namespace {

// This Simd has no doubles, which the vector functions compute in: one lane after the other.
template <double (*function)(double)>
Simd::F by_lanes(Simd::F x) {
  for (int i = 0; i < Simd::kLanes; ++i) {
    x[i] = static_cast<float>(function(static_cast<double>(x[i])));
  }
  return x;
}

Simd::F vector_exp(Simd::F x) { return exp_float(x); }
Simd::F vector_tanh(Simd::F x) { return by_lanes<std::tanh>(x); }
Simd::F vector_erf(Simd::F x) { return by_lanes<std::erf>(x); }

}  // namespace
}  // namespace pinfer

// And these over the functions above.
#include "csrc/kernels/moe_kernel.h"

namespace pinfer {

const MoeKernel kMoePortable = kMoe;

}  // namespace pinfer
