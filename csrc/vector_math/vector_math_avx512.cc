#include "csrc/kernels/simd_avx512.h"
// The templates below are over the Simd above.
#include "csrc/vector_math/vector_function_table.h"

namespace pinfer {

const VectorFunctionTable kVectorFunctionsAvx512 = {Simd::kLanes, kVectorFunctions,
                                                    kNumVectorFunctions};

}  // namespace pinfer
