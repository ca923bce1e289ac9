#include "template/builtins/operators.h"
#include "template/eval/evaluator.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"
#include "template/value/show.h"

namespace pinfer::jinja {

void Evaluator::OutputCapture::write(const Value& value) {
  Heap& heap = evaluator_.context_.heap;
  append_str(heap, text_, value);
  if (text_.capacity() > charged_) {
    heap.reserve(text_.capacity() - charged_);
    charged_ = text_.capacity();
  }
}

void Evaluator::write(const Value& value) { output_->write(value); }

std::string Evaluator::run(const RootNode& root) {
  OutputCapture capture(*this);
  Activation& activation = keep_activation(root.num_slots, nullptr);
  enter_scope(root.enter, activation);
  run_body(root.body, activation);
  return capture.take();
}

Activation& Evaluator::keep_activation(int num_slots, Activation* parent) {
  // Kept to the end, so nothing releases these bytes.
  context_.heap.reserve(sizeof(Activation) + static_cast<size_t>(num_slots) * sizeof(Value));
  kept_.push_back(std::make_unique<Activation>(num_slots, parent));
  return *kept_.back();
}

Activation& Evaluator::outwards(Activation& activation, int hops) {
  Activation* current = &activation;
  for (; hops > 0; --hops) current = current->parent;
  return *current;
}

Value Evaluator::resolve(const std::string& name) {
  if (const Value* found = variables_.dict().find(name)) return *found;
  if (const GlobalFunction* function = find_global_function(name)) {
    return make_function(context_.heap, *function);
  }
  return Value();
}

void Evaluator::enter_scope(const Scope& scope, Activation& activation) {
  context_.heap.spend(static_cast<int64_t>(scope.size()));
  for (const ScopeLoad& load : scope) {
    Value& slot = activation.slots[static_cast<size_t>(load.slot)];
    switch (load.kind) {
      case ScopeLoad::Kind::PARAMETER:
        break;
      case ScopeLoad::Kind::UNDEFINED:
        slot = Value();
        break;
      case ScopeLoad::Kind::RESOLVE:
        slot = resolve(load.name);
        break;
      case ScopeLoad::Kind::ALIAS:
        slot = outwards(activation, load.source.hops).slots[static_cast<size_t>(load.source.slot)];
        break;
    }
  }
}

void Evaluator::leave_scope(const Scope& scope, Activation& activation) {
  for (const ScopeLoad& load : scope) activation.slots[static_cast<size_t>(load.slot)] = Value();
}

Evaluator::Flow Evaluator::run_body(const Body& body, Activation& activation) {
  for (const StatementPtr& statement : body) {
    Flow flow = run_statement(*statement, activation);
    if (flow != Flow::NORMAL) return flow;
  }
  return Flow::NORMAL;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement, Activation& activation) {
  DepthGuard guard(depth_, context_.heap.limits().max_depth);
  context_.heap.spend(1);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::OUTPUT:
      run_output(static_cast<const OutputStatement&>(statement), activation);
      return Flow::NORMAL;
    case StatementKind::IF:
      return run_if(static_cast<const IfStatement&>(statement), activation);
    case StatementKind::FOR:
      return run_for(static_cast<const ForStatement&>(statement), activation);
    case StatementKind::SET: {
      const auto& set = static_cast<const SetStatement&>(statement);
      check_namespaces(set.target, activation);
      assign(set.target, evaluate(*set.value, activation), activation);
      return Flow::NORMAL;
    }
    case StatementKind::SET_BLOCK:
      return run_set_block(static_cast<const SetBlockStatement&>(statement), activation);
    case StatementKind::WITH:
      return run_with(static_cast<const WithStatement&>(statement), activation);
    case StatementKind::FILTER_BLOCK:
      return run_filter_block(static_cast<const FilterBlockStatement&>(statement), activation);
    case StatementKind::MACRO: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      outwards(activation, macro.variable.hops).slots[static_cast<size_t>(macro.variable.slot)] =
          make_macro(macro.macro, activation);
      return Flow::NORMAL;
    }
    case StatementKind::CALL_BLOCK:
      run_call_block(static_cast<const CallBlockStatement&>(statement), activation);
      return Flow::NORMAL;
    case StatementKind::GENERATION: {
      const auto& generation = static_cast<const GenerationStatement&>(statement);
      Value macro = make_macro(generation.macro, activation);
      Arguments none;
      Value text = call(macro, none);
      write(text);
      return Flow::NORMAL;
    }
    case StatementKind::BREAK:
      return Flow::BREAK;
    case StatementKind::CONTINUE:
      return Flow::CONTINUE;
  }
  return Flow::NORMAL;
}

void Evaluator::run_output(const OutputStatement& statement, Activation& activation) {
  for (const ExpressionPtr& node : statement.nodes) {
    write(evaluate(*node, activation));
  }
}

Evaluator::Flow Evaluator::run_if(const IfStatement& statement, Activation& activation) {
  for (const auto& [test, body] : statement.branches) {
    if (is_truthy(evaluate(*test, activation))) return run_body(body, activation);
  }
  return run_body(statement.otherwise, activation);
}

Evaluator::Flow Evaluator::run_set_block(const SetBlockStatement& statement,
                                         Activation& activation) {
  enter_scope(statement.enter, activation);
  Value value;
  {
    OutputCapture capture(*this);
    Flow flow = run_body(statement.body, activation);
    if (flow != Flow::NORMAL) return flow;
    if (statement.filter == nullptr) {
      value = make_string(context_.heap, capture.take());
    } else {
      const std::string* outer_text = std::exchange(block_text_, &capture.text());
      value = evaluate(*statement.filter, activation);
      block_text_ = outer_text;
    }
  }
  check_namespaces(statement.target, activation);
  assign(statement.target, value, activation);
  leave_scope(statement.enter, activation);
  return Flow::NORMAL;
}

Evaluator::Flow Evaluator::run_filter_block(const FilterBlockStatement& statement,
                                            Activation& activation) {
  enter_scope(statement.enter, activation);
  Value value;
  {
    OutputCapture capture(*this);
    Flow flow = run_body(statement.body, activation);
    if (flow != Flow::NORMAL) return flow;
    const std::string* outer_text = std::exchange(block_text_, &capture.text());
    value = evaluate(*statement.filter, activation);
    block_text_ = outer_text;
  }
  write(value);
  leave_scope(statement.enter, activation);
  return Flow::NORMAL;
}

Evaluator::Flow Evaluator::run_with(const WithStatement& statement, Activation& activation) {
  enter_scope(statement.enter, activation);
  for (const auto& [target, value] : statement.assignments) {
    assign(target, evaluate(*value, activation), activation);
  }
  Flow flow = run_body(statement.body, activation);
  leave_scope(statement.enter, activation);
  return flow;
}

void Evaluator::run_call_block(const CallBlockStatement& statement, Activation& activation) {
  Value caller = make_macro(statement.macro, activation);
  Value value = evaluate_call(*statement.call, activation, caller);
  write(value);
}

void Evaluator::check_namespaces(const Target& target, Activation& activation) {
  for (const Target& item : target.items) check_namespaces(item, activation);
  if (target.kind != Target::Kind::ATTRIBUTE) return;
  const Value& object =
      outwards(activation, target.variable.hops).slots[static_cast<size_t>(target.variable.slot)];
  if (!object.is(Type::NAMESPACE)) {
    throw RenderError("cannot assign attribute on non-namespace object");
  }
}

void Evaluator::assign(const Target& target, const Value& value, Activation& activation) {
  if (target.kind == Target::Kind::TUPLE) {
    std::vector<Value> items = collect(context_.heap, value);
    if (items.size() != target.items.size()) {
      bool few = items.size() < target.items.size();
      throw RenderError(std::string(few ? "not enough" : "too many") +
                        " values to unpack (expected " + std::to_string(target.items.size()) +
                        (few ? ", got " + std::to_string(items.size()) : "") + ")");
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i], activation);
    return;
  }
  Value& slot =
      outwards(activation, target.variable.hops).slots[static_cast<size_t>(target.variable.slot)];
  if (target.kind == Target::Kind::NAME) {
    slot = value;
    return;
  }
  if (!slot.is(Type::NAMESPACE)) {
    throw RenderError("cannot assign attribute on non-namespace object");
  }
  if (target.attribute.starts_with('_')) {
    throw RenderError("a namespace cannot store the underscore-prefixed attribute '" +
                      target.attribute + "'");
  }
  slot.as<NamespaceObject>().set(target.attribute, value);
}

}  // namespace pinfer::jinja
