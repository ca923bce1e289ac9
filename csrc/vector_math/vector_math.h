// Vector functions for compiled artifacts: generated code calls exp, tanh and so on for 8 or 16
// floats at a time, under the names of the Sleef library. These are our own, so that artifacts need
// nothing else and give the same numbers everywhere.
//
// Accuracy, against the exact value: exp 1 ulp; all others 0.6 ulp (they compute in double inside).
// Infinities, NaN, denormal numbers and arguments of any size are handled as in C.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pinfer {

// The function for a name such as "Sleef_expf8_u10" (8 lanes: __m256, needs AVX2 and FMA) or
// "Sleef_expf16_u10" (16 lanes: __m512, needs AVX-512); null if there is none. Argument and result
// are passed in vector registers, as the x86-64 ABI says.
void* find_vector_function(std::string_view name);

// All names that find_vector_function knows. Empty on other than x86-64.
std::vector<std::string> vector_function_names();

// One vector function, with a way to call it without its vector type.
struct VectorFunction {
  const char* name;       // of the mathematical function, "exp"
  const char* precision;  // names it is known under end in these: "u10", or "u10 u35"
  void* function;
  void (*apply)(const float* in, float* out);  // one vector of lanes
};

struct VectorFunctionTable {
  int num_lanes;
  const VectorFunction* functions;
  int num_functions;
};

extern const VectorFunctionTable kVectorFunctionsAvx2;
extern const VectorFunctionTable kVectorFunctionsAvx512;

// For rare arguments that vectors do not serve: sine, cosine and tangent of huge numbers.
float scalar_sin(float x);
float scalar_cos(float x);
float scalar_tan(float x);

}  // namespace pinfer
