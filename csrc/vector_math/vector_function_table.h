// The vector functions of one `Simd` by their names (see vector_functions.h).
#pragma once

#include "csrc/vector_math/vector_functions.h"

namespace pinfer {
namespace {

template <F (*function)(F)>
void apply(const float* in, float* out) {
  Simd::store(out, function(Simd::load(in)));
}

template <F (*function)(F)>
VectorFunction describe(const char* name, const char* precision) {
  return {name, precision, reinterpret_cast<void*>(function), apply<function>};
}

const VectorFunction kVectorFunctions[] = {
    describe<vector_exp>("exp", "u10"),     describe<vector_exp2>("exp2", "u10"),
    describe<vector_expm1>("expm1", "u10"), describe<vector_log>("log", "u10"),
    describe<vector_log2>("log2", "u10"),   describe<vector_log10>("log10", "u10"),
    describe<vector_log1p>("log1p", "u10"), describe<vector_tanh>("tanh", "u10"),
    describe<vector_erf>("erf", "u10"),     describe<vector_sin>("sin", "u10 u35"),
    describe<vector_cos>("cos", "u10 u35"), describe<vector_tan>("tan", "u10 u35"),
};

constexpr int kNumVectorFunctions =
    static_cast<int>(sizeof(kVectorFunctions) / sizeof(kVectorFunctions[0]));

}  // namespace
}  // namespace pinfer
