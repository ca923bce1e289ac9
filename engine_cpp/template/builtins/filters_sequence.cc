// Filters on sequences and mappings, and `default`.
#include <algorithm>

#include "template/builtins/attributes.h"
#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/text/python_text.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

Value filter_default(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("default", arguments, {"default_value", "boolean"});
  bool use_default = input.is_undefined() || (flag(bound[1]) && !is_truthy(input));
  if (!use_default) return input;
  return bound[0].is_missing() ? make_string(context.heap, "") : bound[0];
}

Value filter_length(RenderContext&, const Value& input, Arguments& arguments) {
  bind_arguments("length", arguments, {});
  if (input.is(Type::LOOP)) return Value::integer(input.as<LoopObject>().length());
  std::optional<int64_t> length = length_of(input);
  if (!length.has_value()) {
    throw RenderError("object of type '" + type_name(input) + "' has no len()");
  }
  return Value::integer(*length);
}

Value filter_first(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("first", arguments, {});
  Iteration iteration(context.heap, input);
  Value first;
  if (iteration.next(first)) return first;
  return make_undefined(context.heap, "No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  return is_iterable(value) && !value.is(Type::ITERATOR) && !value.is(Type::LOOP);
}

Value filter_last(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("last", arguments, {});
  if (!is_reversible(input)) {
    throw RenderError("'" + type_name(input) + "' object is not reversible");
  }
  if (*length_of(input) == 0) {
    return make_undefined(context.heap, "No last item, sequence was empty.");
  }
  if (input.is_string() || input.is_sequence() || input.is(Type::RANGE)) {
    return get_item(context, input, Value::integer(-1));
  }
  return collect(context.heap, input).back();
}

Value filter_list(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("list", arguments, {});
  return make_list(context.heap, collect(context.heap, input));
}

Value filter_reverse(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("reverse", arguments, {});
  if (input.is_string()) return text_like(context.heap, input, reverse(input.text()));
  if (!is_iterable(input)) throw RenderError("argument must be iterable");
  std::vector<Value> items = collect(context.heap, input);
  std::reverse(items.begin(), items.end());
  if (input.is(Type::ITERATOR)) return make_list(context.heap, std::move(items));
  return make_vector_iterator(context.heap, std::move(items), "list_reverseiterator");
}

Value filter_join(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("join", arguments, {"d", "attribute"});
  Heap& heap = context.heap;
  std::string separator = bound[0].is_missing() ? "" : to_str(heap, bound[0]);
  AttributePath path(heap, bound[1]);
  std::string result;
  Iteration iteration(heap, input);
  Value item;
  for (bool first = true; iteration.next(item); first = false) {
    if (!first) {
      heap.spend_bytes(separator.size());
      heap.check_text_size(result.size() + separator.size());
      result += separator;
    }
    append_str(heap, result, path.look_up(context, item));
  }
  return make_string(heap, std::move(result));
}

Value filter_items(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("items", arguments, {});
  if (input.is_undefined()) return make_vector_iterator(context.heap, {}, "generator");
  if (!input.is_dict()) throw RenderError("Can only get item pairs from a mapping.");
  Value view = make_dict_view(context.heap, input, DictViewObject::Kind::ITEMS);
  return make_vector_iterator(context.heap, collect(context.heap, view), "generator");
}

Value filter_attr(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("attr", arguments, {"name"}, 1);
  return get_attribute_only(context, input, require_text(bound[0], "attr: the name"));
}

Value filter_batch(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("batch", arguments, {"linecount", "fill_with"}, 1);
  int64_t size = require_int(bound[0], "batch");
  Value fill = bound[1].is_missing() ? Value::none() : bound[1];
  auto iteration = std::make_shared<Iteration>(context.heap, input);
  auto pending = std::make_shared<std::vector<Value>>();  // the element that did not fit
  auto next = [&context, iteration, pending, size, fill](Value& element) {
    std::vector<Value> line = std::move(*pending);
    pending->clear();
    Value item;
    bool more = false;
    while (!more && iteration->next(item)) {
      more = static_cast<int64_t>(line.size()) == size;
      (more ? *pending : line).push_back(item);
    }
    if (!more && line.empty()) return false;
    if (!more && !fill.is_none() && size > 0) {
      context.heap.check_num_items(static_cast<size_t>(size));
      context.heap.spend(size);
      while (static_cast<int64_t>(line.size()) < size) line.push_back(fill);
    }
    element = make_list(context.heap, std::move(line));
    return true;
  };
  return make_generator(context, std::max(input.depth(), fill.depth()), next);
}

Value filter_slice(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("slice", arguments, {"slices", "fill_with"}, 1);
  int64_t slices = require_int(bound[0], "slice");
  if (slices == 0) throw RenderError("integer division or modulo by zero");
  bool has_fill = !bound[1].is_missing() && !bound[1].is_none();
  std::vector<Value> items = collect(context.heap, input);
  int64_t length = static_cast<int64_t>(items.size());
  context.heap.check_num_items(static_cast<size_t>(std::max<int64_t>(slices, 0)));
  std::vector<Value> result;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    bool has_extra = i < length % slices;
    int64_t end = begin + length / slices + (has_extra ? 1 : 0);
    std::vector<Value> part(items.begin() + begin, items.begin() + end);
    if (has_fill && !has_extra) part.push_back(bound[1]);
    result.push_back(make_list(context.heap, std::move(part)));
    begin = end;
  }
  return make_vector_iterator(context.heap, std::move(result), "generator");
}

constexpr Filter kSequenceFilters[] = {
    {"default", filter_default}, {"d", filter_default},       {"length", filter_length},
    {"count", filter_length},    {"first", filter_first},     {"last", filter_last},
    {"list", filter_list},       {"reverse", filter_reverse}, {"join", filter_join},
    {"items", filter_items},     {"attr", filter_attr},       {"batch", filter_batch},
    {"slice", filter_slice},
};

}  // namespace

std::span<const Filter> sequence_filters() { return kSequenceFilters; }

}  // namespace pinfer::jinja
