// Statement nodes of a compiled template. Immutable after loading, shared by all renderings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "template/tree/expressions.h"

namespace pinfer::jinja {

// What happens to one variable when its scope is entered.
struct ScopeLoad {
  enum class Kind : uint8_t {
    PARAMETER,  // set by the loop or the call
    UNDEFINED,  // has no value yet
    RESOLVE,    // looked up by name among what the caller gave and the globals
    ALIAS,      // starts with the value of an outer variable
  };
  Kind kind = Kind::UNDEFINED;
  int slot = 0;
  std::string name;    // RESOLVE
  VariableRef source;  // ALIAS
};
using Scope = std::vector<ScopeLoad>;

enum class StatementKind : uint8_t {
  OUTPUT,
  IF,
  FOR,
  SET,
  SET_BLOCK,
  WITH,
  FILTER_BLOCK,
  MACRO,
  CALL_BLOCK,
  GENERATION,
  BREAK,
  CONTINUE,
};

struct Statement {
  explicit Statement(StatementKind kind_in) : kind(kind_in) {}
  virtual ~Statement() = default;
  const StatementKind kind;
  int line = 0;
};
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct Target {
  enum class Kind : uint8_t { NAME, ATTRIBUTE, TUPLE };
  Kind kind = Kind::NAME;
  VariableRef variable;       // NAME, ATTRIBUTE
  std::string attribute;      // ATTRIBUTE: of a namespace
  std::vector<Target> items;  // TUPLE
};

struct OutputStatement : Statement {
  OutputStatement() : Statement(StatementKind::OUTPUT) {}
  std::vector<ExpressionPtr> nodes;
};

struct IfStatement : Statement {
  IfStatement() : Statement(StatementKind::IF) {}
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};

// `{% for x in y if test %}`: the test runs in an activation of its own.
struct LoopFilter {
  int num_slots = 0;
  Scope enter;
  Target target;
  ExpressionPtr test;
};

struct ForStatement : Statement {
  ForStatement() : Statement(StatementKind::FOR) {}
  Target target;
  ExpressionPtr iterable;
  std::optional<int> loop_slot;  // where `loop` is kept, if the body uses it
  Scope enter;
  Body body;
  Scope else_enter;
  Body otherwise;
  std::unique_ptr<LoopFilter> filter;
  std::optional<int> recursive_slots;  // set: a recursive loop, whose body is a function
};

struct SetStatement : Statement {
  SetStatement() : Statement(StatementKind::SET) {}
  Target target;
  ExpressionPtr value;
};

struct SetBlockStatement : Statement {
  SetBlockStatement() : Statement(StatementKind::SET_BLOCK) {}
  Target target;
  Scope enter;
  Body body;
  ExpressionPtr filter;  // may be null
};

struct WithStatement : Statement {
  WithStatement() : Statement(StatementKind::WITH) {}
  Scope enter;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};

struct FilterBlockStatement : Statement {
  FilterBlockStatement() : Statement(StatementKind::FILTER_BLOCK) {}
  Scope enter;
  Body body;
  ExpressionPtr filter;
};

struct MacroParameter {
  std::string name;
  int slot = 0;
  ExpressionPtr default_value;  // may be null
};

struct MacroNode {
  std::optional<std::string> name;
  int num_slots = 0;
  bool has_functions = false;  // macros or recursive loops inside: its activation is kept
  Scope enter;
  std::vector<MacroParameter> parameters;
  std::optional<int> caller_slot, kwargs_slot, varargs_slot;
  Body body;
};

struct MacroStatement : Statement {
  MacroStatement() : Statement(StatementKind::MACRO) {}
  VariableRef variable;
  MacroNode macro;
};

struct CallBlockStatement : Statement {
  CallBlockStatement() : Statement(StatementKind::CALL_BLOCK) {}
  MacroNode macro;
  std::unique_ptr<CallExpression> call;
};

struct GenerationStatement : Statement {
  GenerationStatement() : Statement(StatementKind::GENERATION) {}
  MacroNode macro;
};

struct FlowStatement : Statement {  // BREAK, CONTINUE
  using Statement::Statement;
};

struct RootNode {
  int num_slots = 0;
  Scope enter;
  Body body;
};

}  // namespace pinfer::jinja
