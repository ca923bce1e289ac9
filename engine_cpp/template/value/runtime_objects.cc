#include "template/value/runtime_objects.h"

#include "template/value/compare.h"

namespace pinfer::jinja {

Value* NamespaceObject::find(std::string_view name) {
  for (auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void NamespaceObject::set(const std::string& name, Value value) {
  if (Value* found = find(name)) {
    *found = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

bool LoopObject::peek() {
  if (after_.has_value()) return true;
  Value element;
  if (!iteration_.has_value() || !iteration_->next(element)) return false;
  after_ = std::move(element);
  return true;
}

bool LoopObject::advance() {
  if (!peek()) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = std::move(*after_);
  after_.reset();
  return true;
}

int64_t LoopObject::length() {
  if (length_.has_value()) return *length_;
  length_ = length_of(iterable_);
  if (!length_.has_value()) {
    // A generator: read it all, then go on with what was read.
    std::vector<Value> rest;
    Value element;
    while (iteration_.has_value() && iteration_->next(element)) rest.push_back(std::move(element));
    length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (after_.has_value() ? 1 : 0);
    iteration_.emplace(*heap_, make_vector_iterator(*heap_, std::move(rest), "list_iterator"));
  }
  return *length_;
}

bool LoopObject::changed(std::vector<Value> values) {
  bool same = last_changed_.has_value() && last_changed_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    same = equal_keys(*heap_, (*last_changed_)[i], values[i]);
  }
  last_changed_ = std::move(values);
  return !same;
}

void LoopObject::drop_references() {
  iterable_ = before_ = current_ = Value();
  iteration_.reset();
  after_.reset();
  last_changed_.reset();
}

}  // namespace pinfer::jinja
