// Python's ==, <, in and is-empty for values of templates.
#pragma once

#include "template/value/value.h"

namespace pinfer::jinja {

bool equal(Heap& heap, const Value& left, const Value& right);
// As a dict compares keys: the same object is equal to itself even if it is not-a-number.
bool equal_keys(Heap& heap, const Value& left, const Value& right);
// -1, 0 or 1 for `left` against `right`, kUnordered with a not-a-number. Throws Python's TypeError,
// naming `symbol`, if the types have no order.
inline constexpr int kUnordered = 2;
int order(Heap& heap, const Value& left, const Value& right, const char* symbol);
bool less(Heap& heap, const Value& left, const Value& right);
// `element in container`.
bool contains(Heap& heap, const Value& container, const Value& element);

}  // namespace pinfer::jinja
