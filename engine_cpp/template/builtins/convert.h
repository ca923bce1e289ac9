// What filters, tests and methods share: reading arguments and attribute paths.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "template/builtins/registry.h"

namespace pinfer::jinja {

// The text of an argument that must be text; throws Python's TypeError.
const std::string& require_text(const Value& value, std::string_view what);
int64_t require_int(const Value& value, std::string_view what);
// The argument if it was given and is not none.
std::optional<int64_t> optional_int(const Value& value, std::string_view what);
bool flag(const Value& value, bool default_value = false);
// Markup stays, other text stays, everything else becomes its str().
Value soft_string(Heap& heap, const Value& value);
// Text that keeps the mark of `like`.
Value text_like(Heap& heap, const Value& like, std::string text);

// `attribute="a.b.0"`: where to look in each item.
class AttributePath {
 public:
  // MISSING or none: the item itself.
  AttributePath(Heap& heap, const Value& attribute);
  Value look_up(RenderContext& context, Value item, const Value& default_value = Value()) const;

 private:
  std::vector<Value> parts_;
};
// Text in lower case, other values as they are.
Value ignore_case(Heap& heap, const Value& value);

// An iterator that calls `next` for each element. `source_depth` bounds chains of iterators.
Value make_generator(RenderContext& context, int source_depth, std::function<bool(Value&)> next);

Value apply_filter_by_name(RenderContext& context, const Value& name, const Value& input,
                           Arguments arguments);
bool apply_test_by_name(RenderContext& context, const Value& name, const Value& input,
                        Arguments arguments);

}  // namespace pinfer::jinja
