// Random but valid template trees, made from a stream of bytes: every kind of node, every filter,
// test, method and function, with arguments from the edges.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "template/builtins/registry.h"
#include "template_fixture.h"

namespace pinfer {

class RandomTree {
 public:
  // `next_byte` gives the stream; 0 for ever is a valid end.
  explicit RandomTree(std::function<uint8_t()> next_byte) : next_byte_(std::move(next_byte)) {}

  Json chat_template() {
    functions_ = {kNumSlots};
    Json json = template_of(body(kDepth), kNumSlots);
    json["templates"][0]["root"]["enter"] = enter_globals();
    return json;
  }

 private:
  static constexpr int kNumSlots = 10;
  static constexpr int kDepth = 6;

  int below(size_t count) {
    size_t high = next_byte_();
    return static_cast<int>(((high << 8) | next_byte_()) % count);
  }
  template <typename T, size_t N>
  const T& pick(const T (&choices)[N]) {
    return choices[below(N)];
  }

  static Json enter_globals() {
    static const char* const kNames[] = {"messages", "range",  "dict",        "namespace",
                                         "cycler",   "joiner", "strftime_now"};
    Json enter = Json::array();
    for (int slot = 0; slot < 7; ++slot) {
      enter.push_back({{"load", "resolve"}, {"slot", slot}, {"name", kNames[slot]}});
    }
    return enter;
  }

  // A variable of any function around.
  Json variable() {
    int hops = below(functions_.size());
    int slots = functions_[functions_.size() - 1 - static_cast<size_t>(hops)];
    return {{"kind", "name"}, {"name", "x"}, {"hops", hops}, {"slot", below(slots)}};
  }

  Json constant() {
    switch (below(4)) {
      case 0: {
        static const int64_t kIntegers[] = {0,  1,  2,      3,         -1,        -2,      7,
                                            10, 16, 100000, INT64_MAX, INT64_MIN, 1 << 20, -100};
        return const_node(pick(kIntegers));
      }
      case 1: {
        static const double kReals[] = {0.0, -0.0, 0.5, 2.5, 1e300, -1e-300, 1e16, 12345.678};
        return const_node(pick(kReals));
      }
      case 2: {
        static const Json kOthers[] = {nullptr, true, false, ""};
        return const_node(pick(kOthers));
      }
      default: {
        static const char* const kTexts[] = {"a",
                                             "role",
                                             "content",
                                             "é天😀",
                                             "%s %5.2f %(a)s %%",
                                             "{} {0!r:>8} {a.b[0]}",
                                             "a,b,,c",
                                             " x\n y ",
                                             "ΑΣ ß ŉ",
                                             "upper",
                                             "odd",
                                             "items",
                                             "0x1f",
                                             "-1.5e3",
                                             "<&\"'>",
                                             "%Y-%m-%d %f",
                                             "{:{}}",
                                             "a.b,c.0",
                                             "aaaaaaaa",
                                             "\t\u2028",
                                             "%*d%%%c%",
                                             "{:,.3f}",
                                             "append",
                                             "__class__"};
        return const_node(pick(kTexts));
      }
    }
  }

  Json expressions(int depth, int most) {
    Json list = Json::array();
    for (int count = below(static_cast<size_t>(most) + 1); count > 0; --count) {
      list.push_back(expression(depth));
    }
    return list;
  }

  void add_arguments(Json& node, int depth) {
    static const char* const kKeywords[] = {"attribute", "default", "reverse", "indent",
                                            "boolean",   "width",   "a",       "sort_keys",
                                            "caller",    "sep",     "start",   "case_sensitive"};
    node["args"] = expressions(depth, 3);
    node["kwargs"] = Json::array();
    if (below(4) == 0) {
      node["kwargs"].push_back({{"name", pick(kKeywords)}, {"value", expression(depth)}});
    }
    node["dyn_args"] = below(12) == 0 ? expression(depth) : Json();
    node["dyn_kwargs"] = below(12) == 0 ? expression(depth) : Json();
  }

  template <typename Entry>
  std::string name_of(const std::vector<Entry>& entries) {
    return std::string(entries[static_cast<size_t>(below(entries.size()))].name);
  }

  std::string filter_name() {
    static const std::vector<jinja::Filter> filters = [] {
      std::vector<jinja::Filter> all;
      for (auto group : {jinja::text_filters(), jinja::number_filters(), jinja::sequence_filters(),
                         jinja::selection_filters(), jinja::order_filters()}) {
        all.insert(all.end(), group.begin(), group.end());
      }
      return all;
    }();
    return name_of(filters);
  }

  std::string attribute_name() {
    static const std::vector<jinja::Method> methods = [] {
      std::vector<jinja::Method> all;
      for (auto group : {jinja::string_methods(), jinja::string_methods(), jinja::list_methods(),
                         jinja::dict_methods(), jinja::loop_methods(), jinja::cycler_methods()}) {
        all.insert(all.end(), group.begin(), group.end());
      }
      return all;
    }();
    static const char* const kOthers[] = {"role",     "content", "index",    "last",   "length",
                                          "nextitem", "depth",   "previtem", "append", "__class__",
                                          "encode",   "real",    "grouper",  "name",   "a"};
    return below(3) == 0 ? pick(kOthers) : name_of(methods);
  }

  Json expression(int depth) {
    Json node = depth == 0 ? leaf() : inner(depth - 1);
    node["line"] = 1;
    return node;
  }

  Json leaf() { return below(2) == 0 ? variable() : constant(); }

  Json inner(int depth) {
    switch (below(16)) {
      case 0:
        return leaf();
      case 1: {
        static const char* const kKinds[] = {"list", "tuple", "concat"};
        return {{"kind", pick(kKinds)}, {"items", expressions(depth, 3)}};
      }
      case 2: {
        Json pair = {{"key", expression(0)}, {"value", expression(depth)}};
        return {{"kind", "dict"}, {"items", Json::array({pair})}};
      }
      case 3:
        return {{"kind", "cond"},
                {"test", expression(depth)},
                {"then", expression(depth)},
                {"else", below(3) == 0 ? Json() : expression(depth)}};
      case 4: {
        static const char* const kKinds[] = {"and", "or"};
        return {{"kind", pick(kKinds)}, {"left", expression(depth)}, {"right", expression(depth)}};
      }
      case 5: {
        static const char* const kKinds[] = {"not", "neg", "pos"};
        return {{"kind", pick(kKinds)}, {"node", expression(depth)}};
      }
      case 6:
      case 7: {
        static const char* const kOperators[] = {"+", "-", "*", "/", "//", "%", "**"};
        return {{"kind", "binary"},
                {"operator", pick(kOperators)},
                {"left", expression(depth)},
                {"right", expression(depth)}};
      }
      case 8: {
        static const char* const kOperators[] = {"eq", "ne",   "lt", "lteq",
                                                 "gt", "gteq", "in", "notin"};
        Json operand = {{"operator", pick(kOperators)}, {"node", expression(depth)}};
        return {{"kind", "compare"},
                {"node", expression(depth)},
                {"operands", Json::array({operand, operand})}};
      }
      case 9:
        return {{"kind", "getattr"}, {"node", expression(depth)}, {"name", attribute_name()}};
      case 10:
        return {{"kind", "getitem"}, {"node", expression(depth)}, {"index", expression(depth)}};
      case 11:
        return {{"kind", "slice"},
                {"node", expression(depth)},
                {"start", below(2) == 0 ? Json() : expression(0)},
                {"stop", below(2) == 0 ? Json() : expression(0)},
                {"step", below(2) == 0 ? Json() : expression(0)}};
      case 12:
      case 13:
        return call(depth);
      case 14: {
        Json node = {{"kind", "test"}, {"name", test_name()}, {"node", expression(depth)}};
        add_arguments(node, depth);
        return node;
      }
      default: {
        Json node = {{"kind", "filter"}, {"name", filter_name()}, {"node", expression(depth)}};
        add_arguments(node, depth);
        return node;
      }
    }
  }

  std::string test_name() {
    auto tests = jinja::all_tests();
    return std::string(tests[static_cast<size_t>(below(tests.size()))].name);
  }

  Json call(int depth) {
    Json callee = expression(depth);
    if (below(4) != 0) {
      callee = {{"kind", "getattr"}, {"line", 1}, {"node", callee}, {"name", attribute_name()}};
    }
    Json node = {{"kind", "call"}, {"line", 1}, {"node", callee}};
    add_arguments(node, depth);
    return node;
  }

  Json target(int depth) {
    if (depth > 0 && below(6) == 0) {
      return {{"kind", "tuple"}, {"items", Json::array({target(depth - 1), target(depth - 1)})}};
    }
    Json node = variable();
    if (below(6) == 0) {
      node["kind"] = "attribute";
      node["attribute"] = "a";
    }
    return node;
  }

  Json scope() {
    int slot = kFirstFree + below(kNumSlots - kFirstFree);
    static const char* const kKinds[] = {"undefined", "parameter"};
    return Json::array({{{"load", pick(kKinds)}, {"slot", slot}}});
  }

  Json body(int depth) {
    Json statements = Json::array();
    for (int count = below(3) + (depth == kDepth ? 2 : 0); count > 0; --count) {
      statements.push_back(statement(depth));
    }
    return statements;
  }

  Json statement(int depth) {
    Json node = depth == 0 ? output_of(expression(1)) : nested_statement(depth - 1);
    node["line"] = 1;
    return node;
  }

  Json nested_statement(int depth) {
    switch (below(11)) {
      case 0:
      case 1:
        return output_of(expression(depth));
      case 2:
      case 3:
        return {{"kind", "set"}, {"target", target(1)}, {"value", expression(depth)}};
      case 4: {
        Json branch = {{"test", expression(depth)}, {"body", body(depth)}};
        return {{"kind", "if"}, {"branches", Json::array({branch})}, {"else", body(depth)}};
      }
      case 5:
        return {{"kind", "set_block"},
                {"target", target(0)},
                {"enter", scope()},
                {"body", body(depth)},
                {"filter", below(2) == 0 ? Json() : block_filter()}};
      case 6:
        return {{"kind", "filter_block"},
                {"enter", scope()},
                {"body", body(depth)},
                {"filter", block_filter()}};
      case 7: {
        Json assignment = {{"target", target(0)}, {"value", expression(depth)}};
        return {{"kind", "with"},
                {"enter", scope()},
                {"assignments", Json::array({assignment})},
                {"body", body(depth)}};
      }
      case 8:
        return macro_statement(depth);
      default:
        return for_statement(depth);
    }
  }

  Json block_filter() {
    Json node = {{"kind", "filter"}, {"line", 1}, {"name", filter_name()}, {"node", nullptr}};
    add_arguments(node, 1);
    return node;
  }

  Json macro_statement(int depth) {
    Json result = {{"kind", "macro"}};
    switch (below(3)) {
      case 0:
        result["kind"] = "generation";
        break;
      case 1:
        result["kind"] = "call_block";
        result["call"] = call(depth);
        break;
      default: {
        Json where = variable();
        result["hops"] = where["hops"];
        result["slot"] = where["slot"];
      }
    }
    functions_.push_back(kNumSlots);
    Json parameter = {{"name", "a"}, {"slot", kFirstFree}};
    parameter["default"] = below(2) == 0 ? Json() : expression(depth);
    result["macro"] = {{"name", "f"},
                       {"slots", kNumSlots},
                       {"enter", scope()},
                       {"parameters", Json::array({parameter})},
                       {"caller", below(2) == 0 ? Json() : Json(kFirstFree + 1)},
                       {"kwargs", below(2) == 0 ? Json() : Json(kFirstFree + 2)},
                       {"varargs", below(3) == 0 ? Json() : Json(kFirstFree)},
                       {"body", body(depth)}};
    functions_.pop_back();
    return result;
  }

  Json for_statement(int depth) {
    Json node = {{"kind", "for"}, {"iter", expression(depth)}, {"filter", nullptr}};
    if (below(3) == 0) {
      functions_.push_back(kNumSlots);
      node["filter"] = {{"slots", kNumSlots},
                        {"enter", scope()},
                        {"target", target(0)},
                        {"test", expression(depth)}};
      functions_.pop_back();
    }
    bool recursive = below(4) == 0;
    node["recursive"] = recursive ? Json({{"slots", kNumSlots}}) : Json();
    if (recursive) functions_.push_back(kNumSlots);
    node["target"] = target(1);
    node["loop"] = recursive || below(2) == 0 ? Json(kFirstFree + below(3)) : Json();
    node["enter"] = scope();
    node["body"] = body(depth);
    static const char* const kFlows[] = {"break", "continue"};
    if (below(5) == 0) node["body"].push_back({{"kind", pick(kFlows)}, {"line", 1}});
    node["else_enter"] = scope();
    node["else"] = body(depth);
    if (recursive) functions_.pop_back();
    return node;
  }

  static constexpr int kFirstFree = 7;

  std::function<uint8_t()> next_byte_;
  std::vector<int> functions_;
};

}  // namespace pinfer
