// Going through the elements of a value, as Python's iter() and len() do.
#pragma once

#include <optional>
#include <vector>

#include "template/value/value.h"

namespace pinfer::jinja {

bool is_iterable(const Value& value);
// Python's len(); nothing for values without a length.
std::optional<int64_t> length_of(const Value& value);

// The elements of a value, one by one. Throws Python's TypeError if it has none. Keeps the value.
class Iteration {
 public:
  Iteration(Heap& heap, Value value);
  bool next(Value& element);

 private:
  bool next_char(Value& element);
  bool next_view(Value& element);

  Heap& heap_;
  Value value_;
  size_t position_ = 0;  // index, or byte offset in a string
};

// list(value).
std::vector<Value> collect(Heap& heap, const Value& value);
// An iterator over elements that are already there.
Value make_vector_iterator(Heap& heap, std::vector<Value> items, const char* type_name);

}  // namespace pinfer::jinja
