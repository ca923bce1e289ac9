// The filters, tests, global functions and methods that templates can call, by name.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/value/runtime_objects.h"
#include "template/value/value.h"

namespace pinfer::jinja {

// What one rendering shares among everything that it calls.
struct RenderContext {
  RenderContext(const RenderLimits& limits, std::chrono::system_clock::time_point now_in)
      : heap(limits), now(now_in) {}

  Heap heap;
  const std::chrono::system_clock::time_point now;
  std::vector<std::unique_ptr<NamespaceObject>> namespaces;  // owned to the end
};

// The arguments of one call, as written: positions, then names.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Values in the order of `names`, MISSING where an optional one was not given. Throws Python's
// TypeError for too many, unknown, doubled or missing arguments; the first `num_required` are
// required. Takes the values out of `arguments`.
std::vector<Value> bind_arguments(std::string_view function, Arguments& arguments,
                                  std::initializer_list<std::string_view> names,
                                  size_t num_required = 0);

struct Filter {
  std::string_view name;
  Value (*apply)(RenderContext&, const Value& input, Arguments&);
};

struct Test {
  std::string_view name;
  bool (*apply)(RenderContext&, const Value& input, Arguments&);
};

struct GlobalFunction {
  std::string_view name;
  Value (*call)(RenderContext&, Arguments&);
};

struct Method {
  std::string_view name;
  Value (*call)(RenderContext&, const Value& receiver, Arguments&);
};

// nullptr if there is none of that name.
const Filter* find_filter(std::string_view name);
const Test* find_test(std::string_view name);
const GlobalFunction* find_global_function(std::string_view name);
const Method* find_method(std::span<const Method> methods, std::string_view name);

std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> selection_filters();
std::span<const Filter> order_filters();
std::span<const Test> all_tests();
std::span<const GlobalFunction> global_functions();
std::span<const Method> string_methods();
std::span<const Method> list_methods();
std::span<const Method> dict_methods();
std::span<const Method> dict_function_methods();  // of the global `dict`
std::span<const Method> loop_methods();
std::span<const Method> cycler_methods();

Value make_function(Heap& heap, const GlobalFunction& function);

}  // namespace pinfer::jinja
