#include "csrc/kernels/simd_avx2.h"
// The templates below are over the Simd above.
#include "csrc/vector_math/vector_function_table.h"

namespace pinfer {

const VectorFunctionTable kVectorFunctionsAvx2 = {Simd::kLanes, kVectorFunctions,
                                                  kNumVectorFunctions};

}  // namespace pinfer
