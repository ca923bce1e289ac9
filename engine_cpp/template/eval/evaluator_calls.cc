#include <algorithm>

#include "template/builtins/operators.h"
#include "template/eval/evaluator.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

Arguments Evaluator::evaluate_arguments(const CallArguments& arguments, Activation& activation) {
  Arguments result;
  for (const ExpressionPtr& argument : arguments.args) {
    result.positional.push_back(evaluate(*argument, activation));
  }
  for (const auto& [name, value] : arguments.kwargs) {
    result.named.emplace_back(name, evaluate(*value, activation));
  }
  if (arguments.dyn_args != nullptr) {
    std::vector<Value> more = collect(context_.heap, evaluate(*arguments.dyn_args, activation));
    std::move(more.begin(), more.end(), std::back_inserter(result.positional));
  }
  if (arguments.dyn_kwargs != nullptr) {
    Value more = evaluate(*arguments.dyn_kwargs, activation);
    check_defined(more);
    if (!more.is_dict())
      throw RenderError("argument after ** must be a mapping, not " + type_name(more));
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is_string()) throw RenderError("keywords must be strings");
      result.named.emplace_back(key.text(), value);
    }
  }
  for (size_t i = 0; i < result.named.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (result.named[i].first == result.named[k].first) {
        throw RenderError("got multiple values for keyword argument '" + result.named[i].first +
                          "'");
      }
    }
    context_.heap.spend(static_cast<int64_t>(i));
  }
  return result;
}

Value Evaluator::call(const Value& callee, Arguments& arguments) {
  DepthGuard guard(depth_, context_.heap.limits().max_depth);
  check_defined(callee);
  switch (callee.type()) {
    case Type::FUNCTION:
      return callee.as<FunctionObject>().function->call(context_, arguments);
    case Type::METHOD: {
      const auto& method = callee.as<MethodObject>();
      return method.method->call(context_, method.receiver, arguments);
    }
    case Type::MACRO:
      return call_macro(callee.as<MacroObject>(), arguments);
    case Type::LOOP:
      return call_loop(callee, arguments);
    case Type::JOINER:
      return call_joiner(callee.as<JoinerObject>(), arguments);
    default:
      throw RenderError("'" + type_name(callee) + "' object is not callable");
  }
}

Value Evaluator::call_joiner(JoinerObject& joiner, Arguments& arguments) {
  bind_arguments("joiner", arguments, {});
  if (joiner.used) return joiner.separator;
  joiner.used = true;
  return make_string(context_.heap, "");
}

Value Evaluator::call_loop(const Value& loop_value, Arguments& arguments) {
  auto bound = bind_arguments("loop", arguments, {"iterable"}, 1);
  Value keep_alive = loop_value;
  auto& loop = keep_alive.as<LoopObject>();
  if (loop.recursive == nullptr) {
    throw RenderError("The loop must have the 'recursive' marker to be called recursively.");
  }
  return run_recursive_loop(*loop.recursive, bound[0], *loop.outer, loop.depth0() + 1);
}

Value Evaluator::make_macro(const MacroNode& node, Activation& activation) {
  auto macro = std::make_shared<MacroObject>();
  macro->node = &node;
  macro->parent = &activation;
  macro->charge(context_.heap, sizeof(MacroObject));
  return Value::object(Type::MACRO, std::move(macro));
}

Value Evaluator::call_macro(const MacroObject& macro, Arguments& arguments) {
  const MacroNode& node = *macro.node;
  OwnedActivation activation(*this, node.num_slots, macro.parent, node.has_functions);
  context_.heap.spend(1 + node.num_slots);
  bind_macro_arguments(node, arguments, *activation);
  return run_macro_body(node, *activation);
}

void Evaluator::bind_macro_arguments(const MacroNode& macro, Arguments& arguments,
                                     Activation& activation) {
  std::string name = macro.name.has_value() ? "'" + *macro.name + "'" : "None";
  auto slot = [&](int index) -> Value& { return activation.slots[static_cast<size_t>(index)]; };
  auto take_named = [&](std::string_view wanted) {
    auto found = std::find_if(arguments.named.begin(), arguments.named.end(),
                              [&](const auto& entry) { return entry.first == wanted; });
    if (found == arguments.named.end()) return Value();
    Value value = std::move(found->second);
    arguments.named.erase(found);
    return value;
  };
  size_t num_positional = std::min(arguments.positional.size(), macro.parameters.size());
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const MacroParameter& parameter = macro.parameters[i];
    slot(parameter.slot) =
        i < num_positional ? std::move(arguments.positional[i]) : take_named(parameter.name);
  }
  if (macro.caller_slot.has_value()) {
    Value caller = take_named("caller");
    if (caller.is_missing() || caller.is_none()) {
      caller = make_undefined(context_.heap, "No caller defined");
    }
    slot(*macro.caller_slot) = std::move(caller);
  }
  if (macro.kwargs_slot.has_value()) {
    DictBuilder kwargs(context_.heap);
    for (auto& [key, value] : arguments.named) kwargs.set(key, std::move(value));
    slot(*macro.kwargs_slot) = kwargs.build();
  } else if (!arguments.named.empty()) {
    throw RenderError("macro " + name + " takes no keyword argument '" +
                      arguments.named.front().first + "'");
  }
  std::vector<Value> rest(std::make_move_iterator(arguments.positional.begin() +
                                                  static_cast<std::ptrdiff_t>(num_positional)),
                          std::make_move_iterator(arguments.positional.end()));
  if (macro.varargs_slot.has_value()) {
    slot(*macro.varargs_slot) = make_tuple(context_.heap, std::move(rest));
  } else if (!rest.empty()) {
    throw RenderError("macro " + name + " takes not more than " +
                      std::to_string(macro.parameters.size()) + " argument(s)");
  }
}

Value Evaluator::run_macro_body(const MacroNode& macro, Activation& activation) {
  OutputCapture capture(*this);
  enter_scope(macro.enter, activation);
  for (const MacroParameter& parameter : macro.parameters) {
    Value& slot = activation.slots[static_cast<size_t>(parameter.slot)];
    if (!slot.is_missing()) continue;
    slot =
        parameter.default_value != nullptr
            ? evaluate(*parameter.default_value, activation)
            : make_undefined(context_.heap, "parameter '" + parameter.name + "' was not provided");
  }
  run_body(macro.body, activation);
  return make_string(context_.heap, capture.take());
}

}  // namespace pinfer::jinja
