// Python's str.format(): `"{} {name!r:>10}".format(...)`.
#pragma once

#include "template/builtins/registry.h"

namespace pinfer::jinja {

// REQUIRES format.is_string().
Value brace_format(RenderContext& context, const Value& format, const Arguments& arguments);
// format(value, spec).
std::string format_value(Heap& heap, const Value& value, std::string_view spec);

}  // namespace pinfer::jinja
