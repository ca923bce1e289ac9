// `for`: plain, with a filter, with `loop`, recursive.
#include "template/eval/evaluator.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

// Drops what a loop refers to, however it ends.
class LoopEnd {
 public:
  explicit LoopEnd(LoopObject& loop) : loop_(loop) {}
  ~LoopEnd() { loop_.drop_references(); }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  LoopObject& loop_;
};

}  // namespace

// The elements that pass the loop's test, which runs in an activation of its own.
class Evaluator::LoopFilterIterator : public IteratorObject {
 public:
  LoopFilterIterator(Evaluator& evaluator, const LoopFilter& filter, const Value& iterable,
                     Activation& outer)
      : evaluator_(evaluator),
        filter_(filter),
        iteration_(evaluator.context_.heap, iterable),
        activation_(filter.num_slots, &outer) {
    evaluator_.enter_scope(filter.enter, activation_);
  }

  bool next(Value& element) override {
    while (iteration_.next(element)) {
      evaluator_.assign(filter_.target, element, activation_);
      if (is_truthy(evaluator_.evaluate(*filter_.test, activation_))) return true;
    }
    return false;
  }
  const char* type_name() const override { return "generator"; }

 private:
  Evaluator& evaluator_;
  const LoopFilter& filter_;
  Iteration iteration_;
  Activation activation_;
};

Value Evaluator::filtered_iterable(const ForStatement& statement, const Value& iterable,
                                   Activation& outer) {
  if (statement.filter == nullptr) return iterable;
  auto iterator = std::make_shared<LoopFilterIterator>(*this, *statement.filter, iterable, outer);
  return make_iterator(context_.heap, std::move(iterator), iterable.depth());
}

Evaluator::Flow Evaluator::run_for(const ForStatement& statement, Activation& activation) {
  Value iterable = evaluate(*statement.iterable, activation);
  if (!statement.recursive_slots.has_value()) {
    return run_loop(statement, iterable, activation, activation, 0);
  }
  Value text = run_recursive_loop(statement, iterable, activation, 0);
  write(text);
  return Flow::NORMAL;
}

Value Evaluator::run_recursive_loop(const ForStatement& statement, const Value& iterable,
                                    Activation& outer, int depth0) {
  OutputCapture capture(*this);
  Activation& activation = keep_activation(*statement.recursive_slots, &outer);
  run_loop(statement, iterable, activation, outer, depth0);
  return make_string(context_.heap, capture.take());
}

// `outer` is where the loop statement stands; for a plain loop it is `activation` itself.
Evaluator::Flow Evaluator::run_loop(const ForStatement& statement, const Value& iterable,
                                    Activation& activation, Activation& outer, int depth0) {
  Heap& heap = context_.heap;
  auto loop =
      std::make_shared<LoopObject>(heap, filtered_iterable(statement, iterable, outer), depth0);
  loop->charge(heap, sizeof(LoopObject));
  LoopEnd end(*loop);
  if (statement.recursive_slots.has_value()) {
    loop->recursive = &statement;
    loop->outer = &outer;
  }
  bool any = false;
  while (loop->advance()) {
    any = true;
    if (statement.loop_slot.has_value()) {
      activation.slots[static_cast<size_t>(*statement.loop_slot)] = Value::object(Type::LOOP, loop);
    }
    assign(statement.target, loop->current(), activation);
    enter_scope(statement.enter, activation);
    if (run_body(statement.body, activation) == Flow::BREAK) break;
  }
  leave_scope(statement.enter, activation);
  if (any) return Flow::NORMAL;
  enter_scope(statement.else_enter, activation);
  Flow flow = run_body(statement.otherwise, activation);
  leave_scope(statement.else_enter, activation);
  return flow;
}

}  // namespace pinfer::jinja
