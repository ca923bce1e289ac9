// str(value) and repr(value).
#pragma once

#include <string>

#include "template/value/value.h"

namespace pinfer::jinja {

// What `{{ value }}` writes. Undefined writes nothing.
void append_str(Heap& heap, std::string& out, const Value& value);
std::string to_str(Heap& heap, const Value& value);
void append_repr(Heap& heap, std::string& out, const Value& value);

}  // namespace pinfer::jinja
