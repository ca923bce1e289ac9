// The vector functions of one `Simd` by their names (see vector_functions.h).
#pragma once

#include "csrc/vector_math/vector_functions.h"

namespace pinfer {
namespace {

template <F (*function)(F)>
void apply(const float* in, float* out) {
  Simd::store(out, function(Simd::load(in)));
}

// A constant that the linker fills in: nothing in this file may run before the processor is known.
#define PINFER_VECTOR_FUNCTION(name, precision) \
  {#name, precision, reinterpret_cast<void*>(&vector_##name), apply<vector_##name>}

const VectorFunction kVectorFunctions[] = {
    PINFER_VECTOR_FUNCTION(exp, "u10"),     PINFER_VECTOR_FUNCTION(exp2, "u10"),
    PINFER_VECTOR_FUNCTION(expm1, "u10"),   PINFER_VECTOR_FUNCTION(log, "u10"),
    PINFER_VECTOR_FUNCTION(log2, "u10"),    PINFER_VECTOR_FUNCTION(log10, "u10"),
    PINFER_VECTOR_FUNCTION(log1p, "u10"),   PINFER_VECTOR_FUNCTION(tanh, "u10"),
    PINFER_VECTOR_FUNCTION(erf, "u10"),     PINFER_VECTOR_FUNCTION(sin, "u10 u35"),
    PINFER_VECTOR_FUNCTION(cos, "u10 u35"), PINFER_VECTOR_FUNCTION(tan, "u10 u35"),
};

#undef PINFER_VECTOR_FUNCTION

constexpr int kNumVectorFunctions =
    static_cast<int>(sizeof(kVectorFunctions) / sizeof(kVectorFunctions[0]));

}  // namespace
}  // namespace pinfer
