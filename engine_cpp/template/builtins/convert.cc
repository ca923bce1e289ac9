#include "template/builtins/convert.h"

#include <algorithm>

#include "template/builtins/attributes.h"
#include "template/builtins/operators.h"
#include "template/text/number_text.h"
#include "template/text/python_text.h"
#include "template/text/unicode.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

class FunctionIterator : public IteratorObject {
 public:
  explicit FunctionIterator(std::function<bool(Value&)> next) : next_(std::move(next)) {}
  bool next(Value& element) override {
    if (finished_) return false;
    finished_ = !next_(element);
    return !finished_;
  }
  const char* type_name() const override { return "generator"; }

 private:
  std::function<bool(Value&)> next_;
  bool finished_ = false;
};

std::string name_of(const Value& value) {
  if (value.is_string()) {
    std::string out;
    append_repr(out, value.text());
    return out;
  }
  return value.is_undefined() ? "Undefined" : "of type " + type_name(value);
}

}  // namespace

const std::string& require_text(const Value& value, std::string_view what) {
  check_defined(value);
  if (!value.is_string()) {
    throw RenderError(std::string(what) + " must be str, not " + type_name(value));
  }
  return value.text();
}

int64_t require_int(const Value& value, std::string_view what) {
  check_defined(value);
  if (!value.is_integral()) {
    throw RenderError(std::string(what) + ": '" + type_name(value) +
                      "' object cannot be interpreted as an integer");
  }
  return value.as_int();
}

std::optional<int64_t> optional_int(const Value& value, std::string_view what) {
  if (value.is_missing() || value.is_none()) return std::nullopt;
  return require_int(value, what);
}

bool flag(const Value& value, bool default_value) {
  return value.is_missing() ? default_value : is_truthy(value);
}

Value soft_string(Heap& heap, const Value& value) {
  return value.is_string() ? value : make_string(heap, to_str(heap, value));
}

Value text_like(Heap& heap, const Value& like, std::string text) {
  return make_string(heap, std::move(text), like.string().is_markup);
}

AttributePath::AttributePath(Heap& heap, const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  heap.spend_bytes(attribute.text().size());
  for (std::string_view part : split(attribute.text(), ".", -1)) {
    bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                               [](char c) { return c >= '0' && c <= '9'; });
    ParsedInt number = digits ? parse_int(part, 10) : ParsedInt{};
    if (number.error == IntError::TOO_LARGE) {
      throw RenderError("the integer " + std::string(part.substr(0, 60)) +
                        " needs more than 64 bits");
    }
    parts_.push_back(number.value.has_value() ? Value::integer(*number.value)
                                              : make_string(heap, std::string(part)));
  }
}

Value AttributePath::look_up(RenderContext& context, Value item, const Value& default_value) const {
  for (const Value& part : parts_) {
    item = get_item(context, item, part);
    bool has_default = !default_value.is_missing() && !default_value.is_none();
    if (has_default && item.is_undefined()) item = default_value;
  }
  return item;
}

Value ignore_case(Heap& heap, const Value& value) {
  if (!value.is_string()) return value;
  return text_like(heap, value, to_lower(value.text()));
}

Value make_generator(RenderContext& context, int source_depth, std::function<bool(Value&)> next) {
  return make_iterator(context.heap, std::make_shared<FunctionIterator>(std::move(next)),
                       source_depth);
}

Value apply_filter_by_name(RenderContext& context, const Value& name, const Value& input,
                           Arguments arguments) {
  const Filter* filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) throw RenderError("No filter named " + name_of(name) + ".");
  return filter->apply(context, input, arguments);
}

bool apply_test_by_name(RenderContext& context, const Value& name, const Value& input,
                        Arguments arguments) {
  const Test* test = name.is_string() ? find_test(name.text()) : nullptr;
  if (test == nullptr) throw RenderError("No test named " + name_of(name) + ".");
  return test->apply(context, input, arguments);
}

}  // namespace pinfer::jinja
