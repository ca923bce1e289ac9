// `object.name`, `object[index]` and `object[start:stop:step]` by the rules of the sandbox.
#pragma once

#include <string_view>

#include "template/builtins/registry.h"

namespace pinfer::jinja {

// A Python attribute if there is one (a method of str, ...), else the item of that name, else
// undefined.
Value get_attribute(RenderContext& context, const Value& object, std::string_view name);
// The item, else (for text) the Python attribute, else undefined.
Value get_item(RenderContext& context, const Value& object, const Value& index);
// MISSING or none for an open end.
Value get_slice(RenderContext& context, const Value& object, const Value& start, const Value& stop,
                const Value& step);
// The attribute alone, without falling back to items: the `attr` filter.
Value get_attribute_only(RenderContext& context, const Value& object, std::string_view name);

}  // namespace pinfer::jinja
