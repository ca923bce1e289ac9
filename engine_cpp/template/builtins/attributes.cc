#include "template/builtins/attributes.h"

#include <algorithm>
#include <array>
#include <optional>

#include "template/builtins/operators.h"
#include "template/text/python_text.h"
#include "template/text/utf8.h"
#include "template/tree/statements.h"
#include "template/value/dict.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

// Changing methods, which the sandbox hides.
constexpr std::string_view kListMutators[] = {"append", "clear", "pop",    "reverse",
                                              "insert", "sort",  "extend", "remove"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
// Methods that Python has and this evaluator lacks. The exporter refuses templates that call them.
constexpr std::string_view kMissingStringMethods[] = {"encode", "isidentifier", "maketrans",
                                                      "translate"};
constexpr std::string_view kMissingNumberMethods[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "from_bytes",
    "to_bytes",         "hex",       "fromhex",    "is_integer"};
constexpr std::string_view kMissingViewMethods[] = {"isdisjoint", "mapping"};
// Attributes that every Python object has.
constexpr std::string_view kDunders[] = {
    "__class__",        "__delattr__",   "__dir__",         "__doc__",
    "__eq__",           "__format__",    "__ge__",          "__gt__",
    "__getattribute__", "__hash__",      "__init__",        "__init_subclass__",
    "__le__",           "__lt__",        "__ne__",          "__new__",
    "__reduce__",       "__reduce_ex__", "__repr__",        "__setattr__",
    "__sizeof__",       "__str__",       "__subclasshook__"};

template <size_t N>
bool is_one_of(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::string repr_of(std::string_view text) {
  std::string out;
  append_repr(out, text);
  return out;
}

Value unsafe_attribute(Heap& heap, const Value& object, std::string_view name) {
  return make_undefined(heap, "access to attribute " + repr_of(name) + " of '" + type_name(object) +
                                  "' object is unsafe.");
}

[[noreturn]] void fail_missing(const Value& object, std::string_view name) {
  throw RenderError("the attribute " + repr_of(name) + " of '" + type_name(object) +
                    "' is not supported");
}

std::optional<Value> bound_method(Heap& heap, std::span<const Method> methods, const Value& object,
                                  std::string_view name) {
  const Method* method = find_method(methods, name);
  if (method == nullptr) return std::nullopt;
  auto bound = std::make_shared<MethodObject>();
  bound->set_depth(container_depth(heap, object.depth()));
  bound->receiver = object;
  bound->method = method;
  bound->charge(heap, sizeof(MethodObject));
  return Value::object(Type::METHOD, std::move(bound));
}

Value or_undefined(Heap& heap, Value value, const char* hint) {
  return value.is_missing() ? make_undefined(heap, hint) : value;
}

std::optional<Value> loop_attribute(Heap& heap, const Value& object, std::string_view name) {
  auto& loop = object.as<LoopObject>();
  int64_t index0 = loop.index0();
  if (name == "index") return Value::integer(index0 + 1);
  if (name == "index0") return Value::integer(index0);
  if (name == "first") return Value::boolean(index0 == 0);
  if (name == "last") return Value::boolean(loop.is_last());
  if (name == "length") return Value::integer(loop.length());
  if (name == "revindex") return Value::integer(loop.length() - index0);
  if (name == "revindex0") return Value::integer(loop.length() - index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0() + 1);
  if (name == "depth0") return Value::integer(loop.depth0());
  if (name == "previtem")
    return or_undefined(heap, loop.previous_item(), "there is no previous item");
  if (name == "nextitem") return or_undefined(heap, loop.next_item(), "there is no next item");
  return bound_method(heap, loop_methods(), object, name);
}

std::optional<Value> macro_attribute(Heap& heap, const MacroNode& macro, std::string_view name) {
  if (name == "name") {
    return macro.name.has_value() ? make_string(heap, *macro.name) : Value::none();
  }
  if (name == "arguments") {
    std::vector<Value> names;
    for (const MacroParameter& parameter : macro.parameters) {
      names.push_back(make_string(heap, parameter.name));
    }
    return make_tuple(heap, std::move(names));
  }
  if (name == "caller") return Value::boolean(macro.caller_slot.has_value());
  if (name == "catch_kwargs") return Value::boolean(macro.kwargs_slot.has_value());
  if (name == "catch_varargs") return Value::boolean(macro.varargs_slot.has_value());
  return std::nullopt;
}

std::optional<Value> number_attribute(const Value& object, std::string_view name) {
  if (is_one_of(kMissingNumberMethods, name)) fail_missing(object, name);
  if (name == "real") return positive(object);
  if (name == "imag") return object.is(Type::FLOAT) ? Value::real(0.0) : Value::integer(0);
  if (object.is(Type::FLOAT)) return std::nullopt;
  if (name == "numerator") return positive(object);
  if (name == "denominator") return Value::integer(1);
  return std::nullopt;
}

std::optional<Value> range_attribute(const RangeObject& range, std::string_view name) {
  if (name == "start") return Value::integer(range.start);
  if (name == "stop") return Value::integer(range.stop);
  if (name == "step") return Value::integer(range.step);
  return std::nullopt;
}

std::optional<Value> sequence_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is(Type::LIST) && is_one_of(kListMutators, name)) {
    return unsafe_attribute(heap, object, name);
  }
  if (object.as<ListObject>().is_group) {
    if (name == "grouper") return object.items()[0];
    if (name == "list") return object.items()[1];
  }
  if (object.is(Type::TUPLE) && name == "copy") return std::nullopt;
  return bound_method(heap, list_methods(), object, name);
}

std::optional<Value> cycler_attribute(Heap& heap, const Value& object, std::string_view name) {
  auto& cycler = object.as<CyclerObject>();
  if (name == "current") return cycler.items[cycler.position];
  if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
  if (name == "items") return make_tuple(heap, cycler.items);
  return bound_method(heap, cycler_methods(), object, name);
}

// What Python's getattr(object, name) finds, after the sandbox's checks.
std::optional<Value> python_attribute(Heap& heap, const Value& object, std::string_view name) {
  if (object.is(Type::NAMESPACE)) {
    Value* found = object.as<NamespaceObject>().find(name);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (name.starts_with("__") && is_one_of(kDunders, name)) {
    return unsafe_attribute(heap, object, name);
  }
  switch (object.type()) {
    case Type::STRING:
      if (is_one_of(kMissingStringMethods, name)) fail_missing(object, name);
      return bound_method(heap, string_methods(), object, name);
    case Type::DICT:
      if (is_one_of(kDictMutators, name)) return unsafe_attribute(heap, object, name);
      return bound_method(heap, dict_methods(), object, name);
    case Type::LIST:
    case Type::TUPLE:
      return sequence_attribute(heap, object, name);
    case Type::LOOP:
      return loop_attribute(heap, object, name);
    case Type::MACRO:
      return macro_attribute(heap, *object.as<MacroObject>().node, name);
    case Type::BOOL:
    case Type::INT:
    case Type::FLOAT:
      return number_attribute(object, name);
    case Type::RANGE:
      if (std::optional<Value> bound = range_attribute(object.as<RangeObject>(), name))
        return bound;
      if (name == "copy") return std::nullopt;
      return bound_method(heap, list_methods(), object, name);
    case Type::DICT_VIEW:
      if (is_one_of(kMissingViewMethods, name)) fail_missing(object, name);
      return std::nullopt;
    case Type::CYCLER:
      return cycler_attribute(heap, object, name);
    case Type::JOINER:
      if (name == "sep") return object.as<JoinerObject>().separator;
      if (name == "used") return Value::boolean(object.as<JoinerObject>().used);
      return std::nullopt;
    case Type::FUNCTION:
      if (object.as<FunctionObject>().function->name != "dict") return std::nullopt;
      return bound_method(heap, dict_function_methods(), object, name);
    default:
      return std::nullopt;
  }
}

// Python's `object[index]`; nothing where Python raises TypeError or LookupError.
std::optional<Value> python_item(RenderContext& context, const Value& object, const Value& index) {
  Heap& heap = context.heap;
  if (object.is_dict()) {
    if (!is_hashable(index)) return std::nullopt;
    const Value* found = object.dict().find(heap, index);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!index.is_integral()) return std::nullopt;
  bool has_items = object.is_string() || object.is_sequence() || object.is(Type::RANGE);
  if (!has_items) return std::nullopt;
  int64_t length = *length_of(object);
  int64_t position = index.as_int() < 0 ? index.as_int() + length : index.as_int();
  if (position < 0 || position >= length) return std::nullopt;
  if (object.is_sequence()) return object.items()[static_cast<size_t>(position)];
  if (object.is(Type::RANGE)) return Value::integer(object.as<RangeObject>().at(position));
  const StringObject& string = object.string();
  if (string.is_ascii()) {
    return make_string(heap, string.text.substr(static_cast<size_t>(position), 1),
                       string.is_markup);
  }
  heap.spend_bytes(string.text.size());
  return make_string(heap, slice(string.text, position, 1, 1), string.is_markup);
}

Value undefined_item(RenderContext& context, const Value& object, const Value& index) {
  if (index.is_string()) {
    return make_undefined(context.heap, repr_of(object_description(object)) + " has no attribute " +
                                            repr_of(index.text()));
  }
  std::string shown;
  append_repr(context.heap, shown, index);
  return make_undefined(context.heap, object_description(object) + " has no element " + shown);
}

Value undefined_attribute(RenderContext& context, const Value& object, std::string_view name) {
  return make_undefined(context.heap,
                        repr_of(object_description(object)) + " has no attribute " + repr_of(name));
}

struct SliceBounds {
  int64_t start, stop, length, step;
};

std::optional<int64_t> slice_index(const Value& value) {
  if (value.is_missing() || value.is_none()) return std::nullopt;
  if (!value.is_integral()) {
    throw RenderError("slice indices must be integers or None or have an __index__ method");
  }
  return value.as_int();
}

SliceBounds slice_bounds(int64_t length, const Value& start, const Value& stop, const Value& step) {
  int64_t by = slice_index(step).value_or(1);
  if (by == 0) throw RenderError("slice step cannot be zero");
  by = std::clamp<int64_t>(by, -INT64_MAX, INT64_MAX);
  int64_t low = by < 0 ? -1 : 0, high = by < 0 ? length - 1 : length;
  auto bound = [&](const Value& value, int64_t open) {
    std::optional<int64_t> index = slice_index(value);
    if (!index.has_value()) return open;
    if (*index < 0) return std::max(*index < -length ? low : *index + length, low);
    return std::min(*index, high);
  };
  int64_t from = bound(start, by < 0 ? high : low);
  int64_t to = bound(stop, by < 0 ? low : high);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = (from - to - 1) / -by + 1;
  return {from, to, count, by};
}

}  // namespace

Value get_attribute(RenderContext& context, const Value& object, std::string_view name) {
  check_defined(object);
  if (std::optional<Value> found = python_attribute(context.heap, object, name)) return *found;
  if (object.is_dict()) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return undefined_attribute(context, object, name);
}

Value get_attribute_only(RenderContext& context, const Value& object, std::string_view name) {
  check_defined(object);
  if (std::optional<Value> found = python_attribute(context.heap, object, name)) return *found;
  return undefined_attribute(context, object, name);
}

Value get_item(RenderContext& context, const Value& object, const Value& index) {
  check_defined(object);
  if (std::optional<Value> found = python_item(context, object, index)) return *found;
  if (index.is_string()) {
    if (std::optional<Value> found = python_attribute(context.heap, object, index.text())) {
      return *found;
    }
  }
  return undefined_item(context, object, index);
}

Value get_slice(RenderContext& context, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  Heap& heap = context.heap;
  check_defined(object);
  bool has_items = object.is_string() || object.is_sequence() || object.is(Type::RANGE);
  if (!has_items) {
    throw RenderError(object.is_dict() ? "unhashable type: 'slice'"
                                       : "'" + type_name(object) + "' object is not subscriptable");
  }
  SliceBounds bounds = slice_bounds(*length_of(object), start, stop, step);
  if (object.is_string()) {
    heap.spend_bytes(object.text().size());
    return make_string(heap, slice(object.text(), bounds.start, bounds.length, bounds.step),
                       object.string().is_markup);
  }
  if (object.is(Type::RANGE)) {
    const auto& range = object.as<RangeObject>();
    int64_t by = 0;
    if (__builtin_mul_overflow(range.step, bounds.step, &by) || by == INT64_MIN) {
      throw RenderError("the step of the range needs more than 64 bits");
    }
    return make_range(heap, range.at(bounds.start), range.at(bounds.stop), by);
  }
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(bounds.length));
  for (int64_t i = 0; i < bounds.length; ++i) {
    items.push_back(object.items()[static_cast<size_t>(bounds.start + i * bounds.step)]);
  }
  return object.is(Type::LIST) ? make_list(heap, std::move(items))
                               : make_tuple(heap, std::move(items));
}

}  // namespace pinfer::jinja
