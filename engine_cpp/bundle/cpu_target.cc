#include "bundle/cpu_target.h"

namespace pinfer {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports wants literals; it asks cpuid and, for vector registers, the system.
#define PINFER_FEATURE(name, builtin) \
  if (feature == name) return __builtin_cpu_supports(builtin)

bool has_feature(const std::string& feature) {
  __builtin_cpu_init();
  PINFER_FEATURE("avx", "avx");
  PINFER_FEATURE("avx2", "avx2");
  PINFER_FEATURE("bmi1", "bmi");
  PINFER_FEATURE("bmi2", "bmi2");
  PINFER_FEATURE("f16c", "f16c");
  PINFER_FEATURE("fma", "fma");
  PINFER_FEATURE("lzcnt", "lzcnt");
  PINFER_FEATURE("movbe", "movbe");
  PINFER_FEATURE("avx512f", "avx512f");
  PINFER_FEATURE("avx512bw", "avx512bw");
  PINFER_FEATURE("avx512cd", "avx512cd");
  PINFER_FEATURE("avx512dq", "avx512dq");
  PINFER_FEATURE("avx512vl", "avx512vl");
  return false;
}

#undef PINFER_FEATURE
#else
bool has_feature(const std::string&) { return false; }
#endif

}  // namespace

std::vector<std::string> missing_cpu_features(const std::vector<std::string>& wanted) {
  std::vector<std::string> missing;
  for (const std::string& feature : wanted) {
    if (!has_feature(feature)) missing.push_back(feature);
  }
  return missing;
}

}  // namespace pinfer
