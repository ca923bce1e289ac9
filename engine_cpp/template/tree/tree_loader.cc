#include "template/tree/tree_loader.h"

#include "template/tree/expression_loader.h"

namespace pinfer::jinja {

namespace {

class StatementLoader : private ExpressionLoader {
 public:
  std::unique_ptr<RootNode> load_root(const NodeReader& node) {
    auto root = std::make_unique<RootNode>();
    root->num_slots = open_function(node);
    root->enter = load_scope(node, "enter");
    root->body = load_body(node, "body");
    functions_.pop_back();
    return root;
  }

 private:
  int open_function(const NodeReader& node) {
    int64_t num_slots = node.integer("slots", 0, kMaxSlots);
    functions_.push_back({num_slots, false, 0});
    return static_cast<int>(num_slots);
  }

  Scope load_scope(const NodeReader& node, std::string_view field) {
    Scope scope;
    for (const NodeReader& entry : node.objects(field)) {
      ScopeLoad load;
      load.slot = load_local_slot(entry, "slot");
      std::string kind = entry.text("load");
      if (kind == "parameter") {
        load.kind = ScopeLoad::Kind::PARAMETER;
      } else if (kind == "undefined") {
        load.kind = ScopeLoad::Kind::UNDEFINED;
      } else if (kind == "resolve") {
        load.kind = ScopeLoad::Kind::RESOLVE;
        load.name = entry.text("name");
      } else if (kind == "alias") {
        load.kind = ScopeLoad::Kind::ALIAS;
        load.source = load_variable(entry, "source");
      } else {
        entry.fail("load", "parameter, undefined, resolve or alias");
      }
      scope.push_back(std::move(load));
    }
    return scope;
  }

  Target load_target(const NodeReader& node) {
    TreeDepth depth(depth_, node);
    Target target;
    std::string kind = node.text("kind");
    if (kind == "name") {
      target.variable = load_variable(node);
    } else if (kind == "attribute") {
      target.kind = Target::Kind::ATTRIBUTE;
      target.variable = load_variable(node);
      target.attribute = node.text("attribute");
    } else if (kind == "tuple") {
      target.kind = Target::Kind::TUPLE;
      for (const NodeReader& item : node.objects("items"))
        target.items.push_back(load_target(item));
    } else {
      node.fail("kind", "name, attribute or tuple");
    }
    return target;
  }

  Body load_body(const NodeReader& node, std::string_view field) {
    Body body;
    for (const NodeReader& statement : node.objects(field)) {
      TreeDepth depth(depth_, statement);
      body.push_back(load_statement(statement, statement.text("kind")));
      body.back()->line = load_line(statement);
    }
    return body;
  }

  StatementPtr load_statement(const NodeReader& node, std::string_view kind) {
    if (kind == "output") {
      auto statement = std::make_unique<OutputStatement>();
      for (const NodeReader& item : node.objects("nodes")) statement->nodes.push_back(load(item));
      return statement;
    }
    if (kind == "if") return load_if(node);
    if (kind == "for") return load_for(node);
    if (kind == "set") {
      auto statement = std::make_unique<SetStatement>();
      statement->target = load_target(node.object("target"));
      statement->value = load(node.object("value"));
      return statement;
    }
    if (kind == "set_block") {
      auto statement = std::make_unique<SetBlockStatement>();
      statement->target = load_target(node.object("target"));
      statement->enter = load_scope(node, "enter");
      statement->body = load_body(node, "body");
      if (!node.is_null("filter")) statement->filter = load_block_filter(node);
      return statement;
    }
    if (kind == "filter_block") {
      auto statement = std::make_unique<FilterBlockStatement>();
      statement->enter = load_scope(node, "enter");
      statement->body = load_body(node, "body");
      statement->filter = load_block_filter(node);
      return statement;
    }
    if (kind == "with") return load_with(node);
    if (kind == "macro") {
      auto statement = std::make_unique<MacroStatement>();
      statement->variable = load_variable(node);
      statement->macro = load_macro(node.object("macro"));
      return statement;
    }
    if (kind == "generation") {
      auto statement = std::make_unique<GenerationStatement>();
      statement->macro = load_macro(node.object("macro"));
      return statement;
    }
    if (kind == "call_block") return load_call_block(node);
    if (kind == "break") return load_flow(node, StatementKind::BREAK);
    if (kind == "continue") return load_flow(node, StatementKind::CONTINUE);
    node.fail("kind", "a statement");
  }

  StatementPtr load_flow(const NodeReader& node, StatementKind kind) {
    if (functions_.back().num_loops == 0) node.fail("kind", "no break or continue outside a loop");
    return std::make_unique<FlowStatement>(kind);
  }

  StatementPtr load_if(const NodeReader& node) {
    auto statement = std::make_unique<IfStatement>();
    for (const NodeReader& branch : node.objects("branches")) {
      ExpressionPtr test = load(branch.object("test"));
      statement->branches.emplace_back(std::move(test), load_body(branch, "body"));
    }
    statement->otherwise = load_body(node, "else");
    return statement;
  }

  StatementPtr load_for(const NodeReader& node) {
    auto statement = std::make_unique<ForStatement>();
    statement->iterable = load(node.object("iter"));
    if (!node.is_null("filter")) statement->filter = load_loop_filter(node.object("filter"));
    bool recursive = !node.is_null("recursive");
    if (recursive) {
      functions_.back().has_functions = true;
      statement->recursive_slots = open_function(node.object("recursive"));
    }
    statement->target = load_target(node.object("target"));
    if (!node.is_null("loop")) statement->loop_slot = load_local_slot(node, "loop");
    if (recursive && !statement->loop_slot.has_value()) node.fail("loop", "a slot");
    statement->enter = load_scope(node, "enter");
    ++functions_.back().num_loops;
    statement->body = load_body(node, "body");
    --functions_.back().num_loops;
    statement->else_enter = load_scope(node, "else_enter");
    statement->otherwise = load_body(node, "else");
    if (recursive) functions_.pop_back();
    return statement;
  }

  std::unique_ptr<LoopFilter> load_loop_filter(const NodeReader& node) {
    auto filter = std::make_unique<LoopFilter>();
    filter->num_slots = open_function(node);
    filter->enter = load_scope(node, "enter");
    filter->target = load_target(node.object("target"));
    filter->test = load(node.object("test"));
    functions_.pop_back();
    return filter;
  }

  StatementPtr load_with(const NodeReader& node) {
    auto statement = std::make_unique<WithStatement>();
    statement->enter = load_scope(node, "enter");
    for (const NodeReader& assignment : node.objects("assignments")) {
      Target target = load_target(assignment.object("target"));
      statement->assignments.emplace_back(std::move(target), load(assignment.object("value")));
    }
    statement->body = load_body(node, "body");
    return statement;
  }

  // The innermost filter of the chain has no operand: it stands for the block's text.
  ExpressionPtr load_block_filter(const NodeReader& node) {
    NodeReader innermost = node.object("filter");
    in_block_filter_ = true;
    ExpressionPtr filter = load(innermost);
    in_block_filter_ = false;
    if (filter->kind != ExpressionKind::FILTER) node.fail("filter", "a filter");
    return filter;
  }

  StatementPtr load_call_block(const NodeReader& node) {
    auto statement = std::make_unique<CallBlockStatement>();
    statement->macro = load_macro(node.object("macro"));
    ExpressionPtr call = load(node.object("call"));
    if (call->kind != ExpressionKind::CALL) node.fail("call", "a call");
    statement->call.reset(static_cast<CallExpression*>(call.release()));
    return statement;
  }

  MacroNode load_macro(const NodeReader& node) {
    functions_.back().has_functions = true;
    MacroNode macro;
    if (!node.is_null("name")) macro.name = node.text("name");
    macro.num_slots = open_function(node);
    macro.enter = load_scope(node, "enter");
    for (const NodeReader& parameter : node.objects("parameters")) {
      MacroParameter& added = macro.parameters.emplace_back();
      added.name = parameter.text("name");
      added.slot = load_local_slot(parameter, "slot");
      added.default_value = load_optional(parameter, "default");
    }
    macro.caller_slot = load_optional_slot(node, "caller");
    macro.kwargs_slot = load_optional_slot(node, "kwargs");
    macro.varargs_slot = load_optional_slot(node, "varargs");
    macro.body = load_body(node, "body");
    macro.has_functions = functions_.back().has_functions;
    functions_.pop_back();
    return macro;
  }

  std::optional<int> load_optional_slot(const NodeReader& node, std::string_view field) {
    if (node.is_null(field)) return std::nullopt;
    return load_local_slot(node, field);
  }
};

}  // namespace

Result<std::unique_ptr<RootNode>> load_tree(const nlohmann::ordered_json& root) {
  try {
    return StatementLoader().load_root(NodeReader(root, "root"));
  } catch (const TreeError& error) {
    return Status::data_loss(error.what());
  }
}

}  // namespace pinfer::jinja
