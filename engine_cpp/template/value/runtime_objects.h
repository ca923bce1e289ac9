// Objects that the evaluator makes: loops, macros, namespaces, bound methods, global functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "template/value/iterate.h"
#include "template/value/value.h"

namespace pinfer::jinja {

struct Activation;      // eval/evaluator.h
struct ForStatement;    // tree/statements.h
struct MacroNode;       // tree/statements.h
struct GlobalFunction;  // builtins/registry.h
struct Method;          // builtins/registry.h

// `namespace()`: the one thing that a template can change. It lives to the end of the rendering
// (values refer to it without owning it), so that it may refer to itself.
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> attributes;  // in order of first assignment
  Value* find(std::string_view name);
  void set(const std::string& name, Value value);
};

// The variable `loop`. Its references are dropped when the loop ends.
class LoopObject : public Object {
 public:
  LoopObject(Heap& heap, Value iterable, int depth0)
      : heap_(&heap),
        iterable_(iterable),
        iteration_(std::in_place, heap, std::move(iterable)),
        depth0_(depth0) {}

  // Goes to the next element; false at the end.
  bool advance();
  void drop_references();

  const Value& current() const { return current_; }
  int64_t index0() const { return index0_; }
  int depth0() const { return depth0_; }
  int64_t length();
  bool is_last() { return !peek(); }
  // MISSING if there is none.
  Value previous_item() const { return index0_ == 0 ? Value() : before_; }
  Value next_item() { return peek() ? *after_ : Value(); }
  bool changed(std::vector<Value> values);

  // For recursive loops: what calling `loop(...)` runs.
  const ForStatement* recursive = nullptr;
  Activation* outer = nullptr;

 private:
  bool peek();

  Heap* heap_;
  Value iterable_;
  std::optional<Iteration> iteration_;
  std::optional<int64_t> length_;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
  Value before_, current_;
  int64_t index0_ = -1;
  int depth0_ = 0;
};

struct MacroObject : Object {
  const MacroNode* node = nullptr;
  Activation* parent = nullptr;  // kept to the end of the rendering
};

struct FunctionObject : Object {
  const GlobalFunction* function = nullptr;
};

struct MethodObject : Object {
  Value receiver;
  const Method* method = nullptr;
};

}  // namespace pinfer::jinja
