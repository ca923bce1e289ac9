// map, select, reject and their forms with attributes. All give generators.
#include "template/builtins/convert.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

using Transform = std::function<Value(const Value&)>;
using Predicate = std::function<bool(const Value&)>;

// map(attribute=..., default=...) or map("filter", ...).
Transform make_transform(RenderContext& context, Arguments arguments) {
  if (arguments.positional.empty()) {
    bool has_attribute = false;
    for (const auto& [name, value] : arguments.named) has_attribute |= name == "attribute";
    if (!has_attribute) throw RenderError("map requires a filter argument");
    auto bound = bind_arguments("map", arguments, {"attribute", "default"});
    auto path = std::make_shared<AttributePath>(context.heap, bound[0]);
    return [&context, path, fallback = bound[1]](const Value& item) {
      return path->look_up(context, item, fallback);
    };
  }
  Value name = arguments.positional.front();
  arguments.positional.erase(arguments.positional.begin());
  return [&context, name, arguments](const Value& item) {
    return apply_filter_by_name(context, name, item, arguments);
  };
}

Value filter_map(RenderContext& context, const Value& input, Arguments& arguments) {
  if (!is_truthy(input)) return make_vector_iterator(context.heap, {}, "generator");
  auto iteration = std::make_shared<Iteration>(context.heap, input);
  Transform transform = make_transform(context, arguments);
  return make_generator(context, input.depth(), [iteration, transform](Value& element) {
    Value item;
    if (!iteration->next(item)) return false;
    element = transform(item);
    return true;
  });
}

// select("test", ...) and selectattr("attribute", "test", ...); without a test: truth.
Predicate make_predicate(RenderContext& context, Arguments arguments, bool by_attribute) {
  auto& positional = arguments.positional;
  std::shared_ptr<AttributePath> path;
  if (by_attribute) {
    if (positional.empty()) throw RenderError("Missing parameter for attribute name");
    path = std::make_shared<AttributePath>(context.heap, positional.front());
    positional.erase(positional.begin());
  }
  Value test;
  if (!positional.empty()) {
    test = positional.front();
    positional.erase(positional.begin());
  }
  return [&context, path, test, arguments](const Value& item) {
    Value value = path == nullptr ? item : path->look_up(context, item);
    if (test.is_missing()) return is_truthy(value);
    return apply_test_by_name(context, test, value, arguments);
  };
}

template <bool kWanted, bool kByAttribute>
Value filter_select(RenderContext& context, const Value& input, Arguments& arguments) {
  if (!is_truthy(input)) return make_vector_iterator(context.heap, {}, "generator");
  auto iteration = std::make_shared<Iteration>(context.heap, input);
  Predicate predicate = make_predicate(context, arguments, kByAttribute);
  return make_generator(context, input.depth(), [iteration, predicate](Value& element) {
    while (iteration->next(element)) {
      if (predicate(element) == kWanted) return true;
    }
    return false;
  });
}

constexpr Filter kSelectionFilters[] = {
    {"map", filter_map},
    {"select", filter_select<true, false>},
    {"reject", filter_select<false, false>},
    {"selectattr", filter_select<true, true>},
    {"rejectattr", filter_select<false, true>},
};

}  // namespace

std::span<const Filter> selection_filters() { return kSelectionFilters; }

}  // namespace pinfer::jinja
