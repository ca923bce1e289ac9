// Does this processor have what a bundle was compiled for? Asked before its code is opened.
#pragma once

#include <string>
#include <vector>

namespace pinfer {

// The features of `wanted` (as the manifest names them) that this processor, or its system, lacks.
// A name that is not known here counts as missing.
std::vector<std::string> missing_cpu_features(const std::vector<std::string>& wanted);

}  // namespace pinfer
