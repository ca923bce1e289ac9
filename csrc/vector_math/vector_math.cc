#include "csrc/vector_math/vector_math.h"

#include <cmath>
#include <sstream>

namespace pinfer {

float scalar_sin(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
float scalar_cos(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
float scalar_tan(float x) { return static_cast<float>(std::tan(static_cast<double>(x))); }

namespace {

// Calls visit(full name, function) for every name.
template <typename Visit>
void for_each_name([[maybe_unused]] Visit visit) {
#if defined(__x86_64__)
  for (const VectorFunctionTable* table : {&kVectorFunctionsAvx2, &kVectorFunctionsAvx512}) {
    for (int i = 0; i < table->num_functions; ++i) {
      const VectorFunction& function = table->functions[i];
      std::istringstream precisions(function.precision);
      std::string precision;
      while (precisions >> precision) {
        visit("Sleef_" + std::string(function.name) + "f" + std::to_string(table->num_lanes) + "_" +
                  precision,
              function.function);
      }
    }
  }
#endif
}

}  // namespace

void* find_vector_function(std::string_view name) {
  void* found = nullptr;
  for_each_name([&](const std::string& candidate, void* function) {
    if (candidate == name) found = function;
  });
  return found;
}

std::vector<std::string> vector_function_names() {
  std::vector<std::string> names;
  for_each_name([&](const std::string& name, void*) { names.push_back(name); });
  return names;
}

}  // namespace pinfer
