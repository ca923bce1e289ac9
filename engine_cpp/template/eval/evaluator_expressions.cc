#include "template/builtins/attributes.h"
#include "template/builtins/operators.h"
#include "template/eval/evaluator.h"
#include "template/value/dict.h"
#include "template/value/show.h"

namespace pinfer::jinja {

Value Evaluator::evaluate(const Expression& expression, Activation& activation) {
  DepthGuard guard(depth_, context_.heap.limits().max_depth);
  context_.heap.spend(1);
  switch (expression.kind) {
    case ExpressionKind::CONST:
      return static_cast<const ConstExpression&>(expression).value;
    case ExpressionKind::NAME:
      return evaluate_name(static_cast<const NameExpression&>(expression), activation);
    case ExpressionKind::LIST:
    case ExpressionKind::TUPLE:
    case ExpressionKind::CONCAT:
      return evaluate_sequence(static_cast<const SequenceExpression&>(expression), activation);
    case ExpressionKind::DICT:
      return evaluate_dict(static_cast<const DictExpression&>(expression), activation);
    case ExpressionKind::COND:
      return evaluate_cond(static_cast<const CondExpression&>(expression), activation);
    case ExpressionKind::AND:
    case ExpressionKind::OR:
      return evaluate_logical(static_cast<const LogicalExpression&>(expression), activation);
    case ExpressionKind::NOT:
    case ExpressionKind::NEG:
    case ExpressionKind::POS:
      return evaluate_unary(static_cast<const UnaryExpression&>(expression), activation);
    case ExpressionKind::BINARY:
      return evaluate_binary(static_cast<const BinaryExpression&>(expression), activation);
    case ExpressionKind::COMPARE:
      return evaluate_compare(static_cast<const CompareExpression&>(expression), activation);
    case ExpressionKind::GETATTR:
      return evaluate_getattr(static_cast<const GetattrExpression&>(expression), activation);
    case ExpressionKind::GETITEM:
      return evaluate_getitem(static_cast<const GetitemExpression&>(expression), activation);
    case ExpressionKind::SLICE:
      return evaluate_slice(static_cast<const SliceExpression&>(expression), activation);
    case ExpressionKind::CALL:
      return evaluate_call(static_cast<const CallExpression&>(expression), activation, Value());
    case ExpressionKind::FILTER:
      return evaluate_filter(static_cast<const FilterExpression&>(expression), activation);
    case ExpressionKind::TEST:
      return evaluate_test(static_cast<const TestExpression&>(expression), activation);
  }
  return Value::none();
}

Value Evaluator::evaluate_optional(const ExpressionPtr& expression, Activation& activation) {
  return expression == nullptr ? Value() : evaluate(*expression, activation);
}

Value Evaluator::evaluate_name(const NameExpression& expression, Activation& activation) {
  const VariableRef& variable = expression.variable;
  const Value& slot = outwards(activation, variable.hops).slots[static_cast<size_t>(variable.slot)];
  return slot.is_missing() ? make_undefined_name(context_.heap, expression.name) : slot;
}

Value Evaluator::evaluate_sequence(const SequenceExpression& expression, Activation& activation) {
  if (expression.kind == ExpressionKind::CONCAT) {
    std::string text;
    for (const ExpressionPtr& item : expression.items) {
      append_str(context_.heap, text, evaluate(*item, activation));
    }
    return make_string(context_.heap, std::move(text));
  }
  std::vector<Value> items;
  items.reserve(expression.items.size());
  for (const ExpressionPtr& item : expression.items) items.push_back(evaluate(*item, activation));
  return expression.kind == ExpressionKind::LIST ? make_list(context_.heap, std::move(items))
                                                 : make_tuple(context_.heap, std::move(items));
}

Value Evaluator::evaluate_dict(const DictExpression& expression, Activation& activation) {
  DictBuilder dict(context_.heap);
  for (const auto& [key, value] : expression.items) {
    Value evaluated_key = evaluate(*key, activation);
    dict.set(std::move(evaluated_key), evaluate(*value, activation));
  }
  return dict.build();
}

Value Evaluator::evaluate_cond(const CondExpression& expression, Activation& activation) {
  if (is_truthy(evaluate(*expression.test, activation))) {
    return evaluate(*expression.then, activation);
  }
  if (expression.otherwise != nullptr) return evaluate(*expression.otherwise, activation);
  return make_undefined(context_.heap, "the inline if-expression on line " +
                                           std::to_string(expression.line) +
                                           " evaluated to false and no else section was defined.");
}

Value Evaluator::evaluate_logical(const LogicalExpression& expression, Activation& activation) {
  Value left = evaluate(*expression.left, activation);
  if (is_truthy(left) == (expression.kind == ExpressionKind::OR)) return left;
  return evaluate(*expression.right, activation);
}

Value Evaluator::evaluate_unary(const UnaryExpression& expression, Activation& activation) {
  Value value = evaluate(*expression.node, activation);
  line_ = expression.line;
  if (expression.kind == ExpressionKind::NOT) return Value::boolean(!is_truthy(value));
  return expression.kind == ExpressionKind::NEG ? negate(value) : positive(value);
}

Value Evaluator::evaluate_binary(const BinaryExpression& expression, Activation& activation) {
  Value left = evaluate(*expression.left, activation);
  Value right = evaluate(*expression.right, activation);
  line_ = expression.line;
  return binary_operation(context_, expression.op, left, right);
}

Value Evaluator::evaluate_compare(const CompareExpression& expression, Activation& activation) {
  Value left = evaluate(*expression.node, activation);
  for (const auto& [op, node] : expression.operands) {
    Value right = evaluate(*node, activation);
    line_ = expression.line;
    if (!compare(context_, op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_getattr(const GetattrExpression& expression, Activation& activation) {
  Value object = evaluate(*expression.node, activation);
  line_ = expression.line;
  return get_attribute(context_, object, expression.name);
}

Value Evaluator::evaluate_getitem(const GetitemExpression& expression, Activation& activation) {
  Value object = evaluate(*expression.node, activation);
  Value index = evaluate(*expression.index, activation);
  line_ = expression.line;
  return get_item(context_, object, index);
}

Value Evaluator::evaluate_slice(const SliceExpression& expression, Activation& activation) {
  Value object = evaluate(*expression.node, activation);
  Value start = evaluate_optional(expression.start, activation);
  Value stop = evaluate_optional(expression.stop, activation);
  Value step = evaluate_optional(expression.step, activation);
  line_ = expression.line;
  return get_slice(context_, object, start, stop, step);
}

Value Evaluator::evaluate_filter(const FilterExpression& expression, Activation& activation) {
  Value input;
  if (expression.node != nullptr) {
    input = evaluate(*expression.node, activation);
  } else {
    input = make_string(context_.heap, block_text_ == nullptr ? "" : *block_text_);
  }
  Arguments arguments = evaluate_arguments(expression.arguments, activation);
  line_ = expression.line;
  return expression.filter->apply(context_, input, arguments);
}

Value Evaluator::evaluate_test(const TestExpression& expression, Activation& activation) {
  Value input = evaluate(*expression.node, activation);
  Arguments arguments = evaluate_arguments(expression.arguments, activation);
  line_ = expression.line;
  return Value::boolean(expression.test->apply(context_, input, arguments));
}

Value Evaluator::evaluate_call(const CallExpression& expression, Activation& activation,
                               Value caller) {
  Value callee = evaluate(*expression.node, activation);
  Arguments arguments = evaluate_arguments(expression.arguments, activation);
  if (!caller.is_missing()) arguments.named.emplace_back("caller", std::move(caller));
  line_ = expression.line;
  return call(callee, arguments);
}

}  // namespace pinfer::jinja
