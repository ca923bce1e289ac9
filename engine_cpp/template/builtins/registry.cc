#include "template/builtins/registry.h"

#include <array>

namespace pinfer::jinja {

namespace {

template <typename Entry>
const Entry* find_entry(std::span<const Entry> entries, std::string_view name) {
  for (const Entry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::string quoted_call(std::string_view function) { return std::string(function) + "()"; }

}  // namespace

std::vector<Value> bind_arguments(std::string_view function, Arguments& arguments,
                                  std::initializer_list<std::string_view> names,
                                  size_t num_required) {
  std::vector<Value> bound(names.size());
  if (arguments.positional.size() > names.size()) {
    throw RenderError(quoted_call(function) + " takes at most " + std::to_string(names.size()) +
                      " arguments (" + std::to_string(arguments.positional.size()) + " given)");
  }
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (auto& [name, value] : arguments.named) {
    size_t index = 0;
    while (index < names.size() && names.begin()[index] != name) ++index;
    if (index == names.size()) {
      throw RenderError(quoted_call(function) + " got an unexpected keyword argument '" + name +
                        "'");
    }
    if (!bound[index].is_missing()) {
      throw RenderError(quoted_call(function) + " got multiple values for argument '" + name + "'");
    }
    bound[index] = std::move(value);
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (bound[i].is_missing()) {
      throw RenderError(quoted_call(function) + " missing the argument '" +
                        std::string(names.begin()[i]) + "'");
    }
  }
  return bound;
}

const Filter* find_filter(std::string_view name) {
  for (std::span<const Filter> group : {text_filters(), number_filters(), sequence_filters(),
                                        selection_filters(), order_filters()}) {
    if (const Filter* filter = find_entry(group, name)) return filter;
  }
  return nullptr;
}

const Test* find_test(std::string_view name) { return find_entry(all_tests(), name); }

const GlobalFunction* find_global_function(std::string_view name) {
  return find_entry(global_functions(), name);
}

const Method* find_method(std::span<const Method> methods, std::string_view name) {
  return find_entry(methods, name);
}

Value make_function(Heap& heap, const GlobalFunction& function) {
  auto object = std::make_shared<FunctionObject>();
  object->function = &function;
  object->charge(heap, sizeof(FunctionObject));
  return Value::object(Type::FUNCTION, std::move(object));
}

}  // namespace pinfer::jinja
