// Python's json.dumps, as the tojson filter of chat templates calls it.
#pragma once

#include <optional>
#include <string>

#include "template/value/value.h"

namespace pinfer::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // text of one level; none = one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// Throws RenderError for values that JSON cannot hold.
std::string to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace pinfer::jinja
