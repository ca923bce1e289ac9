// Runs a compiled template once.
//
// Variables live in activations, one for each running function (the template itself, a macro, a
// recursive loop), as the exporter laid them out. Throws RenderError; not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "template/builtins/registry.h"
#include "template/tree/statements.h"

namespace pinfer::jinja {

struct Activation {
  Activation(int num_slots, Activation* parent_in)
      : slots(static_cast<size_t>(num_slots)), parent(parent_in) {}
  std::vector<Value> slots;
  Activation* parent;
};

class Evaluator {
 public:
  // `variables`: a dict of what the caller gives to the template. Keeps references to both.
  Evaluator(RenderContext& context, const Value& variables)
      : context_(context), variables_(variables) {}

  std::string run(const RootNode& root);
  // Line of the source that was being evaluated; for messages.
  int line() const { return line_; }

 private:
  enum class Flow { NORMAL, BREAK, CONTINUE };
  class OutputCapture;
  class OwnedActivation;
  class LoopFilterIterator;

  // Statements (evaluator_statements.cc, evaluator_loops.cc).
  Flow run_body(const Body& body, Activation& activation);
  Flow run_statement(const Statement& statement, Activation& activation);
  void run_output(const OutputStatement& statement, Activation& activation);
  Flow run_if(const IfStatement& statement, Activation& activation);
  Flow run_for(const ForStatement& statement, Activation& activation);
  Flow run_loop(const ForStatement& statement, const Value& iterable, Activation& activation,
                Activation& outer, int depth0);
  Flow run_set_block(const SetBlockStatement& statement, Activation& activation);
  Flow run_filter_block(const FilterBlockStatement& statement, Activation& activation);
  Flow run_with(const WithStatement& statement, Activation& activation);
  void run_call_block(const CallBlockStatement& statement, Activation& activation);
  Value run_recursive_loop(const ForStatement& statement, const Value& iterable, Activation& outer,
                           int depth0);
  Value filtered_iterable(const ForStatement& statement, const Value& iterable, Activation& outer);

  void enter_scope(const Scope& scope, Activation& activation);
  void leave_scope(const Scope& scope, Activation& activation);
  void assign(const Target& target, const Value& value, Activation& activation);
  void check_namespaces(const Target& target, Activation& activation);
  Value resolve(const std::string& name);
  static Activation& outwards(Activation& activation, int hops);

  // Expressions (evaluator_expressions.cc).
  Value evaluate(const Expression& expression, Activation& activation);
  Value evaluate_optional(const ExpressionPtr& expression, Activation& activation);
  Value evaluate_name(const NameExpression& expression, Activation& activation);
  Value evaluate_sequence(const SequenceExpression& expression, Activation& activation);
  Value evaluate_dict(const DictExpression& expression, Activation& activation);
  Value evaluate_cond(const CondExpression& expression, Activation& activation);
  Value evaluate_logical(const LogicalExpression& expression, Activation& activation);
  Value evaluate_unary(const UnaryExpression& expression, Activation& activation);
  Value evaluate_binary(const BinaryExpression& expression, Activation& activation);
  Value evaluate_compare(const CompareExpression& expression, Activation& activation);
  Value evaluate_getattr(const GetattrExpression& expression, Activation& activation);
  Value evaluate_getitem(const GetitemExpression& expression, Activation& activation);
  Value evaluate_slice(const SliceExpression& expression, Activation& activation);
  Value evaluate_call(const CallExpression& expression, Activation& activation, Value caller);
  Value evaluate_filter(const FilterExpression& expression, Activation& activation);
  Value evaluate_test(const TestExpression& expression, Activation& activation);

  // Calls (evaluator_calls.cc).
  Arguments evaluate_arguments(const CallArguments& arguments, Activation& activation);
  Value call(const Value& callee, Arguments& arguments);
  Value call_macro(const MacroObject& macro, Arguments& arguments);
  Value call_loop(const Value& loop, Arguments& arguments);
  Value call_joiner(JoinerObject& joiner, Arguments& arguments);
  Value run_macro_body(const MacroNode& macro, Activation& activation);
  Value make_macro(const MacroNode& node, Activation& activation);
  void bind_macro_arguments(const MacroNode& macro, Arguments& arguments, Activation& activation);

  // Writes str(value) to where the output goes now.
  void write(const Value& value);
  // An activation that closures may keep: it lives to the end of the rendering.
  Activation& keep_activation(int num_slots, Activation* parent);

  RenderContext& context_;
  const Value& variables_;
  std::vector<std::unique_ptr<Activation>> kept_;
  OutputCapture* output_ = nullptr;
  const std::string* block_text_ = nullptr;  // what a filter of a block is applied to
  int depth_ = 0;
  int line_ = 0;
};

// Collects what is written while it lives, and charges it to the heap.
class Evaluator::OutputCapture {
 public:
  explicit OutputCapture(Evaluator& evaluator)
      : evaluator_(evaluator), previous_(evaluator.output_) {
    evaluator_.output_ = this;
  }
  ~OutputCapture() {
    evaluator_.output_ = previous_;
    evaluator_.context_.heap.release(charged_);
  }
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  void write(const Value& value);
  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  Evaluator& evaluator_;
  OutputCapture* previous_;
  std::string text_;
  size_t charged_ = 0;
};

// The activation of one call: kept if the function has functions inside, else gone after the call.
class Evaluator::OwnedActivation {
 public:
  OwnedActivation(Evaluator& evaluator, int num_slots, Activation* parent, bool keep) {
    if (!keep) owned_ = std::make_unique<Activation>(num_slots, parent);
    activation_ = keep ? &evaluator.keep_activation(num_slots, parent) : owned_.get();
  }
  Activation& operator*() { return *activation_; }

 private:
  std::unique_ptr<Activation> owned_;
  Activation* activation_;
};

}  // namespace pinfer::jinja
