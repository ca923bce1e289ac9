// Expression nodes of a compiled template. Immutable after loading, shared by all renderings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "template/value/value.h"

namespace pinfer::jinja {

struct Filter;  // builtins/registry.h
struct Test;    // builtins/registry.h

// Where a variable lives: `hops` activations outwards, in `slot`.
struct VariableRef {
  int hops = 0;
  int slot = 0;
};

enum class ExpressionKind : uint8_t {
  CONST,
  NAME,
  LIST,
  TUPLE,
  CONCAT,
  DICT,
  COND,
  AND,
  OR,
  NOT,
  NEG,
  POS,
  BINARY,
  COMPARE,
  GETATTR,
  GETITEM,
  SLICE,
  CALL,
  FILTER,
  TEST,
};

struct Expression {
  explicit Expression(ExpressionKind kind_in) : kind(kind_in) {}
  virtual ~Expression() = default;
  const ExpressionKind kind;
  int line = 0;
};
using ExpressionPtr = std::unique_ptr<Expression>;

struct ConstExpression : Expression {
  ConstExpression() : Expression(ExpressionKind::CONST) {}
  Value value;
};

struct NameExpression : Expression {
  NameExpression() : Expression(ExpressionKind::NAME) {}
  std::string name;
  VariableRef variable;
};

struct SequenceExpression : Expression {  // LIST, TUPLE, CONCAT
  using Expression::Expression;
  std::vector<ExpressionPtr> items;
};

struct DictExpression : Expression {
  DictExpression() : Expression(ExpressionKind::DICT) {}
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};

struct CondExpression : Expression {
  CondExpression() : Expression(ExpressionKind::COND) {}
  ExpressionPtr test, then, otherwise;  // `otherwise` may be null
};

struct LogicalExpression : Expression {  // AND, OR
  using Expression::Expression;
  ExpressionPtr left, right;
};

struct UnaryExpression : Expression {  // NOT, NEG, POS
  using Expression::Expression;
  ExpressionPtr node;
};

enum class BinaryOperator : uint8_t { ADD, SUB, MUL, DIV, FLOOR_DIV, MOD, POW };

struct BinaryExpression : Expression {
  BinaryExpression() : Expression(ExpressionKind::BINARY) {}
  BinaryOperator op = BinaryOperator::ADD;
  ExpressionPtr left, right;
};

enum class CompareOperator : uint8_t { EQ, NE, LT, LE, GT, GE, IN, NOT_IN };

struct CompareExpression : Expression {
  CompareExpression() : Expression(ExpressionKind::COMPARE) {}
  ExpressionPtr node;
  std::vector<std::pair<CompareOperator, ExpressionPtr>> operands;
};

struct GetattrExpression : Expression {
  GetattrExpression() : Expression(ExpressionKind::GETATTR) {}
  ExpressionPtr node;
  std::string name;
};

struct GetitemExpression : Expression {
  GetitemExpression() : Expression(ExpressionKind::GETITEM) {}
  ExpressionPtr node, index;
};

struct SliceExpression : Expression {
  SliceExpression() : Expression(ExpressionKind::SLICE) {}
  ExpressionPtr node, start, stop, step;  // the last three may be null
};

struct CallArguments {
  std::vector<ExpressionPtr> args;
  std::vector<std::pair<std::string, ExpressionPtr>> kwargs;
  ExpressionPtr dyn_args, dyn_kwargs;  // may be null
};

struct CallExpression : Expression {
  CallExpression() : Expression(ExpressionKind::CALL) {}
  ExpressionPtr node;
  CallArguments arguments;
};

struct FilterExpression : Expression {
  FilterExpression() : Expression(ExpressionKind::FILTER) {}
  const Filter* filter = nullptr;
  ExpressionPtr node;  // null: the text of the block around it
  CallArguments arguments;
};

struct TestExpression : Expression {
  TestExpression() : Expression(ExpressionKind::TEST) {}
  const Test* test = nullptr;
  ExpressionPtr node;
  CallArguments arguments;
};

}  // namespace pinfer::jinja
