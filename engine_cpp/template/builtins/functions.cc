// The global functions of chat templates.
#include "template/builtins/convert.h"
#include "template/text/strftime.h"
#include "template/text/utf8.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // of Jinja2's sandbox
constexpr int64_t kMaxRangeBound = int64_t{1} << 53;

// namespace() and dict(): a mapping or pairs, then names.
std::vector<DictObject::Entry> read_entries(Heap& heap, Arguments& arguments,
                                            const char* function) {
  if (arguments.positional.size() > 1) {
    throw RenderError(std::string(function) + " expected at most 1 argument, got " +
                      std::to_string(arguments.positional.size()));
  }
  std::vector<DictObject::Entry> entries;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      entries = source.dict().entries();
    } else {
      Iteration iteration(heap, source);
      Value pair;
      while (iteration.next(pair)) {
        std::vector<Value> parts = collect(heap, pair);
        if (parts.size() != 2) {
          throw RenderError("dictionary update sequence element has length " +
                            std::to_string(parts.size()) + "; 2 is required");
        }
        entries.emplace_back(parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) {
    entries.emplace_back(make_string(heap, name), std::move(value));
  }
  return entries;
}

Value call_dict(RenderContext& context, Arguments& arguments) {
  DictBuilder dict(context.heap);
  for (auto& [key, value] : read_entries(context.heap, arguments, "dict")) {
    dict.set(std::move(key), std::move(value));
  }
  return dict.build();
}

Value call_namespace(RenderContext& context, Arguments& arguments) {
  auto object = std::make_unique<NamespaceObject>();
  object->charge(context.heap, sizeof(NamespaceObject));
  for (auto& [key, value] : read_entries(context.heap, arguments, "namespace")) {
    const std::string& name = require_text(key, "namespace: a name");
    if (name.starts_with('_')) {
      throw RenderError("a namespace cannot store the underscore-prefixed attribute '" + name +
                        "'");
    }
    object->set(name, std::move(value));
  }
  // Values refer to the namespace without owning it: it may contain itself.
  std::shared_ptr<Object> reference(std::shared_ptr<void>(), object.get());
  context.namespaces.push_back(std::move(object));
  return Value::object(Type::NAMESPACE, std::move(reference));
}

Value call_range(RenderContext& context, Arguments& arguments) {
  if (!arguments.named.empty()) throw RenderError("range() takes no keyword arguments");
  size_t count = arguments.positional.size();
  if (count == 0 || count > 3) {
    throw RenderError("range expected 1 to 3 arguments, got " + std::to_string(count));
  }
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < count; ++i) {
    int64_t number = require_int(arguments.positional[i], "range");
    if (number > kMaxRangeBound || number < -kMaxRangeBound) {
      throw RenderError("range: the number " + std::to_string(number) + " is too large");
    }
    bounds[count == 1 ? 1 : i] = number;
  }
  if (bounds[2] == 0) throw RenderError("range() arg 3 must not be zero");
  Value range = make_range(context.heap, bounds[0], bounds[1], bounds[2]);
  if (range.as<RangeObject>().length() > kMaxRange) {
    throw RenderError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return range;
}

Value call_cycler(RenderContext& context, Arguments& arguments) {
  if (arguments.positional.empty()) throw RenderError("at least one item has to be provided");
  auto object = std::make_shared<CyclerObject>();
  object->set_depth(container_depth(context.heap, deepest(arguments.positional)));
  object->items = std::move(arguments.positional);
  arguments.positional.clear();
  bind_arguments("cycler", arguments, {});
  object->charge(context.heap, sizeof(CyclerObject) + object->items.size() * sizeof(Value));
  return Value::object(Type::CYCLER, std::move(object));
}

Value call_joiner(RenderContext& context, Arguments& arguments) {
  auto bound = bind_arguments("joiner", arguments, {"sep"});
  auto object = std::make_shared<JoinerObject>();
  object->separator = bound[0].is_missing() ? make_string(context.heap, ", ") : bound[0];
  object->set_depth(container_depth(context.heap, object->separator.depth()));
  object->charge(context.heap, sizeof(JoinerObject));
  return Value::object(Type::JOINER, std::move(object));
}

Value call_raise_exception(RenderContext& context, Arguments& arguments) {
  auto bound = bind_arguments("raise_exception", arguments, {"message"}, 1);
  throw RenderError(to_str(context.heap, bound[0]), RenderError::Origin::TEMPLATE);
}

Value call_strftime_now(RenderContext& context, Arguments& arguments) {
  auto bound = bind_arguments("strftime_now", arguments, {"format"}, 1);
  const std::string& pattern = require_text(bound[0], "strftime() argument 1");
  if (pattern.find('\0') != std::string::npos) throw RenderError("embedded null character");
  context.heap.check_text_size(pattern.size() * 256);
  context.heap.spend_bytes(pattern.size() * 256);
  std::string text = format_local_time(context.now, pattern);
  if (utf8_error(text).has_value()) throw RenderError("strftime_now: the pattern is not valid");
  return make_string(context.heap, std::move(text));
}

constexpr GlobalFunction kFunctions[] = {
    {"range", call_range},
    {"dict", call_dict},
    {"namespace", call_namespace},
    {"cycler", call_cycler},
    {"joiner", call_joiner},
    {"raise_exception", call_raise_exception},
    {"strftime_now", call_strftime_now},
};

}  // namespace

std::span<const GlobalFunction> global_functions() { return kFunctions; }

}  // namespace pinfer::jinja
