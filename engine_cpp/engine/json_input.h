// JSON from outside, parsed with a limit on nesting.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/status.h"

namespace pinfer {

// Deeper documents are refused: rendering and printing walk them recursively.
inline constexpr int kMaxJsonDepth = 256;

// Keeps the order of keys. INVALID_ARGUMENT with the position for text that is not JSON,
// and for integers that 64 bits do not hold.
Result<nlohmann::ordered_json> parse_json(std::string_view text);

}  // namespace pinfer
