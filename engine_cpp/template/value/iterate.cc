#include "template/value/iterate.h"

#include "template/text/utf8.h"
#include "template/value/dict.h"

namespace pinfer::jinja {

namespace {

class VectorIterator : public IteratorObject {
 public:
  VectorIterator(std::vector<Value> items, const char* type_name)
      : items_(std::move(items)), type_name_(type_name) {}
  bool next(Value& element) override {
    if (position_ == items_.size()) return false;
    element = std::move(items_[position_++]);
    return true;
  }
  const char* type_name() const override { return type_name_; }

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
  const char* type_name_;
};

}  // namespace

bool is_iterable(const Value& value) {
  switch (value.type()) {
    case Type::STRING:
    case Type::LIST:
    case Type::TUPLE:
    case Type::DICT:
    case Type::DICT_VIEW:
    case Type::RANGE:
    case Type::ITERATOR:
    case Type::UNDEFINED:
    case Type::LOOP:
      return true;
    default:
      return false;
  }
}

std::optional<int64_t> length_of(const Value& value) {
  switch (value.type()) {
    case Type::STRING:
      return value.string().num_chars;
    case Type::LIST:
    case Type::TUPLE:
      return static_cast<int64_t>(value.items().size());
    case Type::DICT:
      return static_cast<int64_t>(value.dict().size());
    case Type::DICT_VIEW:
      return static_cast<int64_t>(value.as<DictViewObject>().dict.dict().size());
    case Type::RANGE:
      return value.as<RangeObject>().length();
    case Type::UNDEFINED:
      return 0;
    default:
      return std::nullopt;
  }
}

bool is_truthy(const Value& value) {
  switch (value.type()) {
    case Type::NONE:
      return false;
    case Type::BOOL:
      return value.as_bool();
    case Type::INT:
      return value.as_int() != 0;
    case Type::FLOAT:
      return value.as_double() != 0.0;
    default: {
      std::optional<int64_t> length = length_of(value);
      return !length.has_value() || *length != 0;
    }
  }
}

Iteration::Iteration(Heap& heap, Value value) : heap_(heap), value_(std::move(value)) {
  if (value_.is(Type::LOOP)) throw RenderError("iterating over 'loop' is not supported");
  if (!is_iterable(value_)) {
    throw RenderError("'" + type_name(value_) + "' object is not iterable");
  }
}

bool Iteration::next(Value& element) {
  heap_.spend(1);
  switch (value_.type()) {
    case Type::LIST:
    case Type::TUPLE:
      if (position_ == value_.items().size()) return false;
      element = value_.items()[position_++];
      return true;
    case Type::DICT:
      if (position_ == value_.dict().size()) return false;
      element = value_.dict().entries()[position_++].first;
      return true;
    case Type::STRING:
      return next_char(element);
    case Type::DICT_VIEW:
      return next_view(element);
    case Type::RANGE: {
      const auto& range = value_.as<RangeObject>();
      if (static_cast<int64_t>(position_) >= range.length()) return false;
      element = Value::integer(range.at(static_cast<int64_t>(position_++)));
      return true;
    }
    case Type::ITERATOR:
      return value_.as<IteratorObject>().next(element);
    default:
      return false;  // undefined has no elements
  }
}

bool Iteration::next_char(Value& element) {
  const std::string& text = value_.text();
  if (position_ >= text.size()) return false;
  size_t length = utf8_char_length(text, position_);
  element = make_string(heap_, text.substr(position_, length));
  position_ += length;
  return true;
}

bool Iteration::next_view(Value& element) {
  const auto& view = value_.as<DictViewObject>();
  const auto& entries = view.dict.dict().entries();
  if (position_ == entries.size()) return false;
  const auto& [key, value] = entries[position_++];
  switch (view.kind) {
    case DictViewObject::Kind::KEYS:
      element = key;
      break;
    case DictViewObject::Kind::VALUES:
      element = value;
      break;
    case DictViewObject::Kind::ITEMS:
      element = make_tuple(heap_, {key, value});
      break;
  }
  return true;
}

std::vector<Value> collect(Heap& heap, const Value& value) {
  std::vector<Value> items;
  Iteration iteration(heap, value);
  Value element;
  while (iteration.next(element)) {
    heap.check_num_items(items.size());
    items.push_back(std::move(element));
  }
  return items;
}

Value make_vector_iterator(Heap& heap, std::vector<Value> items, const char* type_name) {
  int depth = deepest(items);
  heap.spend(static_cast<int64_t>(items.size()));
  return make_iterator(heap, std::make_shared<VectorIterator>(std::move(items), type_name), depth);
}

}  // namespace pinfer::jinja
