#include "template/tree/expression_loader.h"

#include <cmath>

#include "template/builtins/registry.h"
#include "template/tree/tree_loader.h"

namespace pinfer::jinja {

namespace {

template <typename Enum>
struct NamedEnum {
  std::string_view name;
  Enum value;
};

constexpr NamedEnum<BinaryOperator> kBinaryOperators[] = {
    {"+", BinaryOperator::ADD},  {"-", BinaryOperator::SUB},        {"*", BinaryOperator::MUL},
    {"/", BinaryOperator::DIV},  {"//", BinaryOperator::FLOOR_DIV}, {"%", BinaryOperator::MOD},
    {"**", BinaryOperator::POW},
};

// Jinja2's names of the operators.
constexpr NamedEnum<CompareOperator> kCompareOperators[] = {
    {"eq", CompareOperator::EQ}, {"ne", CompareOperator::NE},
    {"lt", CompareOperator::LT}, {"lteq", CompareOperator::LE},
    {"gt", CompareOperator::GT}, {"gteq", CompareOperator::GE},
    {"in", CompareOperator::IN}, {"notin", CompareOperator::NOT_IN},
};

template <typename Enum, size_t N>
Enum read_enum(const NodeReader& node, std::string_view field, const NamedEnum<Enum> (&names)[N]) {
  std::string name = node.text(field);
  for (const auto& entry : names) {
    if (entry.name == name) return entry.value;
  }
  node.fail(field, "an operator");
}

}  // namespace

TreeDepth::TreeDepth(int& depth, const NodeReader& node) : depth_(depth) {
  if (depth_ >= kMaxTreeDepth) {
    throw TreeError(node.path() + ": nested more than " + std::to_string(kMaxTreeDepth) +
                    " levels deep");
  }
  ++depth_;
}

int ExpressionLoader::load_line(const NodeReader& node) {
  return static_cast<int>(node.integer("line", 0, INT32_MAX));
}

VariableRef ExpressionLoader::load_variable(const NodeReader& node, std::string_view slot_field) {
  int64_t hops = node.integer("hops", 0, static_cast<int64_t>(functions_.size()) - 1);
  const FunctionScope& function = functions_[functions_.size() - 1 - static_cast<size_t>(hops)];
  int64_t slot = node.integer(slot_field, 0, function.num_slots - 1);
  return {static_cast<int>(hops), static_cast<int>(slot)};
}

int ExpressionLoader::load_local_slot(const NodeReader& node, std::string_view field) {
  return static_cast<int>(node.integer(field, 0, functions_.back().num_slots - 1));
}

ExpressionPtr ExpressionLoader::load(const NodeReader& node) {
  TreeDepth depth(depth_, node);
  ExpressionPtr expression = load_kind(node, node.text("kind"));
  expression->line = load_line(node);
  return expression;
}

ExpressionPtr ExpressionLoader::load_optional(const NodeReader& node, std::string_view field) {
  return node.is_null(field) ? nullptr : load(node.object(field));
}

std::vector<ExpressionPtr> ExpressionLoader::load_list(const NodeReader& node,
                                                       std::string_view field) {
  std::vector<ExpressionPtr> items;
  for (const NodeReader& item : node.objects(field)) items.push_back(load(item));
  return items;
}

ExpressionPtr ExpressionLoader::load_kind(const NodeReader& node, std::string_view kind) {
  auto sequence = [&](ExpressionKind which) {
    auto result = std::make_unique<SequenceExpression>(which);
    result->items = load_list(node, "items");
    return result;
  };
  auto unary = [&](ExpressionKind which) {
    auto result = std::make_unique<UnaryExpression>(which);
    result->node = load(node.object("node"));
    return result;
  };
  auto logical = [&](ExpressionKind which) {
    auto result = std::make_unique<LogicalExpression>(which);
    result->left = load(node.object("left"));
    result->right = load(node.object("right"));
    return result;
  };
  if (kind == "const") return load_const(node);
  if (kind == "name") {
    auto result = std::make_unique<NameExpression>();
    result->name = node.text("name");
    result->variable = load_variable(node);
    return result;
  }
  if (kind == "list") return sequence(ExpressionKind::LIST);
  if (kind == "tuple") return sequence(ExpressionKind::TUPLE);
  if (kind == "concat") return sequence(ExpressionKind::CONCAT);
  if (kind == "not") return unary(ExpressionKind::NOT);
  if (kind == "neg") return unary(ExpressionKind::NEG);
  if (kind == "pos") return unary(ExpressionKind::POS);
  if (kind == "and") return logical(ExpressionKind::AND);
  if (kind == "or") return logical(ExpressionKind::OR);
  if (kind == "binary") return load_binary(node);
  if (kind == "compare") return load_compare(node);
  if (kind == "filter") return load_filter(node);
  if (kind == "test") return load_test(node);
  if (kind == "dict") {
    auto result = std::make_unique<DictExpression>();
    for (const NodeReader& pair : node.objects("items")) {
      ExpressionPtr key = load(pair.object("key"));
      result->items.emplace_back(std::move(key), load(pair.object("value")));
    }
    return result;
  }
  if (kind == "cond") {
    auto result = std::make_unique<CondExpression>();
    result->test = load(node.object("test"));
    result->then = load(node.object("then"));
    result->otherwise = load_optional(node, "else");
    return result;
  }
  if (kind == "getattr") {
    auto result = std::make_unique<GetattrExpression>();
    result->node = load(node.object("node"));
    result->name = node.text("name");
    return result;
  }
  if (kind == "getitem") {
    auto result = std::make_unique<GetitemExpression>();
    result->node = load(node.object("node"));
    result->index = load(node.object("index"));
    return result;
  }
  if (kind == "slice") {
    auto result = std::make_unique<SliceExpression>();
    result->node = load(node.object("node"));
    result->start = load_optional(node, "start");
    result->stop = load_optional(node, "stop");
    result->step = load_optional(node, "step");
    return result;
  }
  if (kind == "call") {
    auto result = std::make_unique<CallExpression>();
    result->node = load(node.object("node"));
    result->arguments = load_arguments(node);
    return result;
  }
  node.fail("kind", "an expression");
}

ExpressionPtr ExpressionLoader::load_const(const NodeReader& node) {
  const Json& value = node.field("value");
  auto result = std::make_unique<ConstExpression>();
  if (value.is_null()) {
    result->value = Value::none();
  } else if (value.is_boolean()) {
    result->value = Value::boolean(value.get<bool>());
  } else if (value.is_number_integer()) {
    result->value = Value::integer(node.integer("value", INT64_MIN, INT64_MAX));
  } else if (value.is_number_float() && std::isfinite(value.get<double>())) {
    result->value = Value::real(value.get<double>());
  } else if (value.is_string()) {
    result->value = Value::constant(node.text("value"));
  } else {
    node.fail("value", "null, a boolean, a number or a text");
  }
  return result;
}

ExpressionPtr ExpressionLoader::load_binary(const NodeReader& node) {
  auto result = std::make_unique<BinaryExpression>();
  result->op = read_enum(node, "operator", kBinaryOperators);
  result->left = load(node.object("left"));
  result->right = load(node.object("right"));
  return result;
}

ExpressionPtr ExpressionLoader::load_compare(const NodeReader& node) {
  auto result = std::make_unique<CompareExpression>();
  result->node = load(node.object("node"));
  for (const NodeReader& operand : node.objects("operands")) {
    CompareOperator op = read_enum(operand, "operator", kCompareOperators);
    result->operands.emplace_back(op, load(operand.object("node")));
  }
  if (result->operands.empty()) node.fail("operands", "at least one operand");
  return result;
}

ExpressionPtr ExpressionLoader::load_filter(const NodeReader& node) {
  auto result = std::make_unique<FilterExpression>();
  result->filter = find_filter(node.text("name"));
  if (result->filter == nullptr) node.fail("name", "a filter that this version knows");
  result->node = load_optional(node, "node");
  if (result->node == nullptr && !in_block_filter_) node.fail("node", "an expression");
  bool in_block_filter = in_block_filter_;
  in_block_filter_ = false;  // arguments are expressions of their own
  result->arguments = load_arguments(node);
  in_block_filter_ = in_block_filter;
  return result;
}

ExpressionPtr ExpressionLoader::load_test(const NodeReader& node) {
  auto result = std::make_unique<TestExpression>();
  result->test = find_test(node.text("name"));
  if (result->test == nullptr) node.fail("name", "a test that this version knows");
  result->node = load(node.object("node"));
  result->arguments = load_arguments(node);
  return result;
}

CallArguments ExpressionLoader::load_arguments(const NodeReader& node) {
  CallArguments arguments;
  arguments.args = load_list(node, "args");
  for (const NodeReader& keyword : node.objects("kwargs")) {
    std::string name = keyword.text("name");
    arguments.kwargs.emplace_back(std::move(name), load(keyword.object("value")));
  }
  arguments.dyn_args = load_optional(node, "dyn_args");
  arguments.dyn_kwargs = load_optional(node, "dyn_kwargs");
  return arguments;
}

}  // namespace pinfer::jinja
