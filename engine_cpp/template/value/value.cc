#include "template/value/value.h"

#include <algorithm>

#include "template/text/utf8.h"
#include "template/value/dict.h"

namespace pinfer::jinja {

StringObject::StringObject(std::string text_in, bool is_markup_in)
    : text(std::move(text_in)), num_chars(utf8_length(text)), is_markup(is_markup_in) {}

int64_t RangeObject::length() const {
  if (step > 0 && start < stop) return (stop - start - 1) / step + 1;
  if (step < 0 && start > stop) return (start - stop - 1) / -step + 1;
  return 0;
}

Value Value::constant(std::string text) {
  return object(Type::STRING, std::make_shared<StringObject>(std::move(text), false));
}

const std::string& Value::text() const { return as<StringObject>().text; }
const StringObject& Value::string() const { return as<StringObject>(); }
const std::vector<Value>& Value::items() const { return as<ListObject>().items; }
const DictObject& Value::dict() const { return as<DictObject>(); }

bool Value::is_same(const Value& other) const {
  if (type_ != other.type_) return false;
  switch (type_) {
    case Type::NONE:
    case Type::MISSING:
      return true;
    case Type::BOOL:
      return as_bool() == other.as_bool();
    case Type::INT:  // CPython keeps one object for each of these small integers
      return as_int() == other.as_int() && as_int() >= -5 && as_int() <= 256;
    case Type::FLOAT:
      return false;
    case Type::STRING:  // as CPython: one object for the empty string and for each Latin-1
                        // character
      if (object_ == other.object_) return true;
      return text() == other.text() && !string().is_markup && !other.string().is_markup &&
             (text().empty() || (string().num_chars == 1 && text().size() <= 2 &&
                                 static_cast<unsigned char>(text()[0]) <= 0xC3));
    default:
      return object_ == other.object_;
  }
}

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

int container_depth(const Heap& heap, int deepest_child) {
  if (deepest_child >= heap.limits().max_value_depth) {
    throw RenderError("a value of the chat template is nested more than " +
                      std::to_string(heap.limits().max_value_depth) + " levels deep");
  }
  return deepest_child + 1;
}

Value make_string(Heap& heap, std::string text, bool is_markup) {
  heap.check_text_size(text.size());
  heap.spend_bytes(text.size());
  auto object = std::make_shared<StringObject>(std::move(text), is_markup);
  object->charge(heap, sizeof(StringObject) + object->text.capacity());
  return Value::object(Type::STRING, std::move(object));
}

namespace {

Value make_sequence(Heap& heap, Type type, std::vector<Value> items, bool is_group) {
  heap.spend(1 + static_cast<int64_t>(items.size()));
  auto object = std::make_shared<ListObject>();
  object->set_depth(container_depth(heap, deepest(items)));
  object->items = std::move(items);
  object->is_group = is_group;
  object->charge(heap, sizeof(ListObject) + object->items.capacity() * sizeof(Value));
  return Value::object(type, std::move(object));
}

}  // namespace

Value make_list(Heap& heap, std::vector<Value> items) {
  return make_sequence(heap, Type::LIST, std::move(items), false);
}

Value make_tuple(Heap& heap, std::vector<Value> items, bool is_group) {
  return make_sequence(heap, Type::TUPLE, std::move(items), is_group);
}

Value make_undefined(Heap& heap, std::string message) {
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  object->charge(heap, sizeof(UndefinedObject) + object->message.capacity());
  return Value::object(Type::UNDEFINED, std::move(object));
}

Value make_undefined_name(Heap& heap, std::string_view name) {
  return make_undefined(heap, "'" + std::string(name) + "' is undefined");
}

Value make_range(Heap& heap, int64_t start, int64_t stop, int64_t step) {
  auto object = std::make_shared<RangeObject>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  object->charge(heap, sizeof(RangeObject));
  return Value::object(Type::RANGE, std::move(object));
}

Value make_dict_view(Heap& heap, Value dict, DictViewObject::Kind kind) {
  auto object = std::make_shared<DictViewObject>();
  object->set_depth(container_depth(heap, dict.depth()));
  object->dict = std::move(dict);
  object->kind = kind;
  object->charge(heap, sizeof(DictViewObject));
  return Value::object(Type::DICT_VIEW, std::move(object));
}

Value make_iterator(Heap& heap, std::shared_ptr<IteratorObject> iterator, int source_depth) {
  iterator->set_depth(container_depth(heap, source_depth));
  iterator->charge(heap, 128);
  return Value::object(Type::ITERATOR, std::move(iterator));
}

std::string type_name(const Value& value) {
  switch (value.type()) {
    case Type::MISSING:
    case Type::UNDEFINED:
      return "Undefined";
    case Type::NONE:
      return "NoneType";
    case Type::BOOL:
      return "bool";
    case Type::INT:
      return "int";
    case Type::FLOAT:
      return "float";
    case Type::STRING:
      return value.string().is_markup ? "Markup" : "str";
    case Type::LIST:
      return "list";
    case Type::TUPLE:
      return value.as<ListObject>().is_group ? "_GroupTuple" : "tuple";
    case Type::DICT:
      return "dict";
    case Type::DICT_VIEW: {
      static constexpr const char* kNames[] = {"dict_keys", "dict_values", "dict_items"};
      return kNames[static_cast<int>(value.as<DictViewObject>().kind)];
    }
    case Type::RANGE:
      return "range";
    case Type::ITERATOR:
      return value.as<IteratorObject>().type_name();
    case Type::NAMESPACE:
      return "Namespace";
    case Type::LOOP:
      return "LoopContext";
    case Type::MACRO:
      return "Macro";
    case Type::FUNCTION:
      return "function";
    case Type::METHOD:
      return "builtin_function_or_method";
    case Type::CYCLER:
      return "Cycler";
    case Type::JOINER:
      return "Joiner";
  }
  return "object";
}

std::string object_description(const Value& value) {
  if (value.is_none()) return "None";
  switch (value.type()) {
    case Type::STRING:
      return value.string().is_markup ? "markupsafe.Markup object" : "str object";
    case Type::NAMESPACE:
      return "jinja2.utils.Namespace object";
    case Type::LOOP:
    case Type::MACRO:
      return "jinja2.runtime." + type_name(value) + " object";
    case Type::CYCLER:
    case Type::JOINER:
      return "jinja2.utils." + type_name(value) + " object";
    default:
      return type_name(value) + " object";
  }
}

}  // namespace pinfer::jinja
