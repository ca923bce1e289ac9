#include "template/value/dict.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "template/value/compare.h"

namespace pinfer::jinja {

namespace {

// Below this size a dict is searched from the front.
constexpr size_t kSmallDict = 8;

size_t hash_text(std::string_view text) { return std::hash<std::string_view>{}(text); }

size_t hash_number(const Value& value) {
  if (value.is(Type::FLOAT)) {
    double number = value.as_double();
    if (std::isfinite(number) && std::trunc(number) == number && number >= -9223372036854775808.0 &&
        number < 9223372036854775808.0) {
      return std::hash<int64_t>{}(static_cast<int64_t>(number));  // 1 == 1.0 == true
    }
    return std::hash<double>{}(number);
  }
  return std::hash<int64_t>{}(value.as_int());
}

}  // namespace

bool is_hashable(const Value& value) {
  if (value.is(Type::LIST) || value.is_dict()) return false;
  if (value.is(Type::DICT_VIEW)) {
    return value.as<DictViewObject>().kind == DictViewObject::Kind::VALUES;
  }
  if (value.is(Type::TUPLE)) {
    for (const Value& item : value.items()) {
      if (!is_hashable(item)) return false;
    }
  }
  return true;
}

void check_hashable(const Value& value) {
  if (value.is(Type::TUPLE)) {
    for (const Value& item : value.items()) check_hashable(item);
  } else if (!is_hashable(value)) {
    throw RenderError("unhashable type: '" + type_name(value) + "'");
  }
}

size_t hash_value(Heap& heap, const Value& value) {
  heap.spend(1);
  switch (value.type()) {
    case Type::BOOL:
    case Type::INT:
    case Type::FLOAT:
      return hash_number(value);
    case Type::STRING:
      heap.spend_bytes(value.text().size());
      return hash_text(value.text());
    case Type::TUPLE: {
      size_t hash = 0x345678;
      for (const Value& item : value.items()) hash = hash * 1000003 + hash_value(heap, item);
      return hash;
    }
    case Type::RANGE:
      return static_cast<size_t>(value.as<RangeObject>().length());
    case Type::UNDEFINED:
    case Type::NONE:
    case Type::MISSING:
      return static_cast<size_t>(value.type());
    default:
      return std::hash<const void*>{}(value.object());
  }
}

size_t DictObject::position(Heap& heap, const Value& key, size_t hash) const {
  if (entries_.size() <= kSmallDict) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (equal_keys(heap, entries_[i].first, key)) return i;
    }
    return kNone;
  }
  auto [first, last] = positions_.equal_range(hash);
  for (; first != last; ++first) {
    if (equal_keys(heap, entries_[first->second].first, key)) return first->second;
  }
  return kNone;
}

const Value* DictObject::find(Heap& heap, const Value& key) const {
  size_t hash = entries_.size() <= kSmallDict ? 0 : hash_value(heap, key);
  size_t index = position(heap, key, hash);
  return index == kNone ? nullptr : &entries_[index].second;
}

const Value* DictObject::find(std::string_view key) const {
  auto matches = [&](const Entry& entry) {
    return entry.first.is_string() && entry.first.text() == key;
  };
  if (entries_.size() <= kSmallDict) {
    for (const Entry& entry : entries_) {
      if (matches(entry)) return &entry.second;
    }
    return nullptr;
  }
  auto [first, last] = positions_.equal_range(hash_text(key));
  for (; first != last; ++first) {
    if (matches(entries_[first->second])) return &entries_[first->second].second;
  }
  return nullptr;
}

void DictObject::set(Heap& heap, Value key, Value value) {
  size_t hash = hash_value(heap, key);
  size_t index = position(heap, key, hash);
  if (index != kNone) {
    entries_[index].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() == kSmallDict + 1) {
    for (size_t i = 0; i + 1 < entries_.size(); ++i) {
      positions_.emplace(hash_value(heap, entries_[i].first), i);
    }
  }
  if (entries_.size() > kSmallDict) positions_.emplace(hash, entries_.size() - 1);
}

DictBuilder::DictBuilder(Heap& heap) : heap_(heap), dict_(std::make_shared<DictObject>()) {}

void DictBuilder::set(Value key, Value value) {
  check_hashable(key);
  deepest_ = std::max({deepest_, key.depth(), value.depth()});
  heap_.check_num_items(dict_->size());
  dict_->set(heap_, std::move(key), std::move(value));
}

void DictBuilder::set(std::string_view key, Value value) {
  set(make_string(heap_, std::string(key)), std::move(value));
}

Value DictBuilder::build() {
  dict_->set_depth(container_depth(heap_, deepest_));
  dict_->charge(heap_, sizeof(DictObject) + dict_->size() * 2 * sizeof(DictObject::Entry));
  return Value::object(Type::DICT, std::move(dict_));
}

}  // namespace pinfer::jinja
