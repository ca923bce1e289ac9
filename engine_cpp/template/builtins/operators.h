// Python's arithmetic on values of templates.
#pragma once

#include "template/builtins/registry.h"
#include "template/tree/expressions.h"

namespace pinfer::jinja {

Value binary_operation(RenderContext& context, BinaryOperator op, const Value& left,
                       const Value& right);
Value negate(const Value& value);
Value positive(const Value& value);
// The `in`-less comparisons; `symbol` of CompareOperator is Python's.
bool compare(RenderContext& context, CompareOperator op, const Value& left, const Value& right);
// Throws what an operation on an undefined value says, if it is one.
void check_defined(const Value& value);
// The text of `value` as a part of markup: escaped unless it is markup itself.
std::string escaped(Heap& heap, const Value& value);

}  // namespace pinfer::jinja
