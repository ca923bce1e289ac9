#include "template/value/compare.h"

#include <algorithm>
#include <cmath>

#include "template/text/python_text.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

int order_doubles(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return kUnordered;
  return left < right ? -1 : left > right ? 1 : 0;
}

// Exact, also where a double cannot hold the integer.
int order_int_double(int64_t left, double right) {
  if (std::isnan(right)) return kUnordered;
  if (right >= 9223372036854775808.0) return -1;
  if (right < -9223372036854775808.0) return 1;
  double floor = std::floor(right);
  int64_t whole = static_cast<int64_t>(floor);
  if (left != whole) return left < whole ? -1 : 1;
  return right > floor ? -1 : 0;
}

int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int() ? 1 : 0;
  }
  if (left.is_integral()) return order_int_double(left.as_int(), right.as_double());
  if (right.is_integral()) {
    int result = order_int_double(right.as_int(), left.as_double());
    return result == kUnordered ? kUnordered : -result;
  }
  return order_doubles(left.as_double(), right.as_double());
}

bool equal_dicts(Heap& heap, const DictObject& left, const DictObject& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.find(heap, key);
    if (other == nullptr || !equal_keys(heap, value, *other)) return false;
  }
  return true;
}

bool equal_items(Heap& heap, const std::vector<Value>& left, const std::vector<Value>& right) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    if (!equal_keys(heap, left[i], right[i])) return false;
  }
  return true;
}

bool equal_ranges(const RangeObject& left, const RangeObject& right) {
  int64_t length = left.length();
  if (length != right.length()) return false;
  if (length == 0) return true;
  return left.start == right.start && (length == 1 || left.step == right.step);
}

[[noreturn]] void fail_order(const Value& left, const Value& right, const char* symbol) {
  throw RenderError("'" + std::string(symbol) + "' not supported between instances of '" +
                    type_name(left) + "' and '" + type_name(right) + "'");
}

bool contains_substring(Heap& heap, const Value& container, const Value& element) {
  if (!element.is_string()) {
    throw RenderError("'in <string>' requires string as left operand, not " + type_name(element));
  }
  heap.spend_bytes(container.text().size());
  return find_text(container.text(), element.text()) != std::string_view::npos;
}

bool contains_in_range(const RangeObject& range, const Value& element) {
  if (!element.is_number()) return false;
  double real = element.as_double();
  if (element.is(Type::FLOAT) && (std::trunc(real) != real || std::fabs(real) > 9e15)) return false;
  int64_t number = element.is(Type::FLOAT) ? static_cast<int64_t>(real) : element.as_int();
  int64_t length = range.length();
  if (length == 0) return false;
  int64_t low = range.step > 0 ? range.start : range.at(length - 1);
  int64_t high = range.step > 0 ? range.at(length - 1) : range.start;
  return number >= low && number <= high && (number - range.start) % range.step == 0;
}

}  // namespace

bool equal_keys(Heap& heap, const Value& left, const Value& right) {
  if (left.object() != nullptr && left.object() == right.object()) {
    heap.spend(1);
    return true;
  }
  return equal(heap, left, right);
}

// Recursion is bounded by the depth of values (RenderLimits::max_value_depth).
bool equal(Heap& heap, const Value& left, const Value& right) {
  heap.spend(1);
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.type() != right.type()) return false;
  switch (left.type()) {
    case Type::STRING:
      if (left.text().size() != right.text().size()) return false;
      heap.spend_bytes(left.text().size());
      return left.text() == right.text();
    case Type::LIST:
    case Type::TUPLE:
      return equal_items(heap, left.items(), right.items());
    case Type::DICT:
      return equal_dicts(heap, left.dict(), right.dict());
    case Type::RANGE:
      return equal_ranges(left.as<RangeObject>(), right.as<RangeObject>());
    case Type::NONE:
    case Type::UNDEFINED:
    case Type::MISSING:
      return true;
    case Type::DICT_VIEW: {
      auto& one = left.as<DictViewObject>();
      auto& other = right.as<DictViewObject>();
      if (one.kind != other.kind || one.kind == DictViewObject::Kind::VALUES) {
        return left.object() == right.object();
      }
      if (one.kind == DictViewObject::Kind::ITEMS) {
        return equal_dicts(heap, one.dict.dict(), other.dict.dict());
      }
      if (one.dict.dict().size() != other.dict.dict().size()) return false;
      for (const auto& entry : one.dict.dict().entries()) {
        if (other.dict.dict().find(heap, entry.first) == nullptr) return false;
      }
      return true;
    }
    default:
      return left.object() == right.object();
  }
}

int order(Heap& heap, const Value& left, const Value& right, const char* symbol) {
  heap.spend(1);
  if (left.is_number() && right.is_number()) return order_numbers(left, right);
  if (left.is_undefined() || right.is_undefined()) {
    throw RenderError((left.is_undefined() ? left : right).as<UndefinedObject>().message);
  }
  if (left.is_string() && right.is_string()) {
    heap.spend_bytes(std::min(left.text().size(), right.text().size()));
    int result = left.text().compare(right.text());  // UTF-8 keeps the order of code points
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  if (!left.is_sequence() || left.type() != right.type()) fail_order(left, right, symbol);
  const std::vector<Value>& one = left.items();
  const std::vector<Value>& other = right.items();
  for (size_t i = 0; i < one.size() && i < other.size(); ++i) {
    if (!equal_keys(heap, one[i], other[i])) return order(heap, one[i], other[i], symbol);
  }
  return one.size() < other.size() ? -1 : one.size() > other.size() ? 1 : 0;
}

bool less(Heap& heap, const Value& left, const Value& right) {
  return order(heap, left, right, "<") == -1;
}

bool contains(Heap& heap, const Value& container, const Value& element) {
  switch (container.type()) {
    case Type::STRING:
      return contains_substring(heap, container, element);
    case Type::DICT:
      check_hashable(element);
      return container.dict().find(heap, element) != nullptr;
    case Type::RANGE:
      return contains_in_range(container.as<RangeObject>(), element);
    case Type::DICT_VIEW:
      if (container.as<DictViewObject>().kind == DictViewObject::Kind::KEYS) {
        check_hashable(element);
        return container.as<DictViewObject>().dict.dict().find(heap, element) != nullptr;
      }
      break;
    case Type::LIST:
    case Type::TUPLE:
    case Type::ITERATOR:
    case Type::UNDEFINED:
      break;
    default:
      throw RenderError("argument of type '" + type_name(container) + "' is not iterable");
  }
  Iteration iteration(heap, container);
  Value item;
  while (iteration.next(item)) {
    if (equal_keys(heap, item, element)) return true;
  }
  return false;
}

}  // namespace pinfer::jinja
