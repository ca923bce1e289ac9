// Methods of lists, tuples, ranges, dicts, `loop` and `cycler`.
#include "template/builtins/convert.h"
#include "template/value/compare.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

Value list_copy(RenderContext& context, const Value& receiver, Arguments& arguments) {
  bind_arguments("copy", arguments, {});
  return make_list(context.heap, receiver.items());
}

Value list_count(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("count", arguments, {"value"}, 1);
  int64_t found = 0;
  Iteration iteration(context.heap, receiver);
  Value item;
  while (iteration.next(item)) {
    if (equal_keys(context.heap, item, bound[0])) ++found;
  }
  return Value::integer(found);
}

Value list_index(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("index", arguments, {"value", "start", "stop"}, 1);
  int64_t length = *length_of(receiver);
  auto clamp = [&](const Value& bound_value, int64_t open) {
    std::optional<int64_t> index = optional_int(bound_value, "slice indices");
    if (!index.has_value()) return open;
    return *index < 0 ? std::max<int64_t>(*index < -length ? 0 : *index + length, 0) : *index;
  };
  int64_t start = clamp(bound[1], 0), stop = clamp(bound[2], length);
  Iteration iteration(context.heap, receiver);
  Value item;
  for (int64_t index = 0; index < stop && iteration.next(item); ++index) {
    if (index >= start && equal_keys(context.heap, item, bound[0])) return Value::integer(index);
  }
  throw RenderError("the value is not in " + type_name(receiver));
}

template <DictViewObject::Kind kKind>
Value dict_view(RenderContext& context, const Value& receiver, Arguments& arguments) {
  bind_arguments("dict method", arguments, {});
  return make_dict_view(context.heap, receiver, kKind);
}

Value dict_get(RenderContext& context, const Value& receiver, Arguments& arguments) {
  if (!arguments.named.empty()) throw RenderError("dict.get() takes no keyword arguments");
  auto bound = bind_arguments("get", arguments, {"key", "default"}, 1);
  check_hashable(bound[0]);
  const Value* found = receiver.dict().find(context.heap, bound[0]);
  if (found != nullptr) return *found;
  return bound[1].is_missing() ? Value::none() : bound[1];
}

Value dict_copy(RenderContext& context, const Value& receiver, Arguments& arguments) {
  bind_arguments("copy", arguments, {});
  DictBuilder copy(context.heap);
  for (const auto& [key, value] : receiver.dict().entries()) copy.set(key, value);
  return copy.build();
}

Value dict_fromkeys(RenderContext& context, const Value&, Arguments& arguments) {
  auto bound = bind_arguments("fromkeys", arguments, {"iterable", "value"}, 1);
  DictBuilder dict(context.heap);
  Iteration iteration(context.heap, bound[0]);
  Value key;
  while (iteration.next(key)) dict.set(key, bound[1].is_missing() ? Value::none() : bound[1]);
  return dict.build();
}

Value loop_cycle(RenderContext&, const Value& receiver, Arguments& arguments) {
  if (arguments.positional.empty()) throw RenderError("no items for cycling given");
  size_t count = arguments.positional.size();
  size_t index = static_cast<size_t>(std::max<int64_t>(receiver.as<LoopObject>().index0(), 0));
  Value chosen = arguments.positional[index % count];
  arguments.positional.clear();
  bind_arguments("cycle", arguments, {});
  return chosen;
}

Value loop_changed(RenderContext&, const Value& receiver, Arguments& arguments) {
  std::vector<Value> values = std::move(arguments.positional);
  arguments.positional.clear();
  bind_arguments("changed", arguments, {});
  return Value::boolean(receiver.as<LoopObject>().changed(std::move(values)));
}

Value cycler_next(RenderContext&, const Value& receiver, Arguments& arguments) {
  bind_arguments("next", arguments, {});
  auto& cycler = receiver.as<CyclerObject>();
  Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Value cycler_reset(RenderContext&, const Value& receiver, Arguments& arguments) {
  bind_arguments("reset", arguments, {});
  receiver.as<CyclerObject>().position = 0;
  return Value::none();
}

constexpr Method kListMethods[] = {
    {"copy", list_copy}, {"count", list_count}, {"index", list_index}};

constexpr Method kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<DictViewObject::Kind::ITEMS>},
    {"keys", dict_view<DictViewObject::Kind::KEYS>},
    {"values", dict_view<DictViewObject::Kind::VALUES>},
    {"copy", dict_copy},
    {"fromkeys", dict_fromkeys},
};

constexpr Method kDictFunctionMethods[] = {{"fromkeys", dict_fromkeys}};
constexpr Method kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
constexpr Method kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

}  // namespace

std::span<const Method> list_methods() { return kListMethods; }
std::span<const Method> dict_methods() { return kDictMethods; }
std::span<const Method> dict_function_methods() { return kDictFunctionMethods; }
std::span<const Method> loop_methods() { return kLoopMethods; }
std::span<const Method> cycler_methods() { return kCyclerMethods; }

}  // namespace pinfer::jinja
