// JSON of a request as values of templates.
#pragma once

#include <nlohmann/json.hpp>

#include "template/value/value.h"

namespace pinfer::jinja {

// Throws RenderError for text that is not UTF-8, integers beyond 64 bits and nesting beyond
// `kMaxJsonDepth`.
inline constexpr int kMaxJsonDepth = 256;
Value from_json(Heap& heap, const nlohmann::ordered_json& json);
Value string_from_json(Heap& heap, const std::string& text);

}  // namespace pinfer::jinja
