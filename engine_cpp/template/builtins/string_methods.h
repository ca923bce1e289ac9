// Methods of str, in two groups that string_methods() joins.
#pragma once

#include "template/builtins/registry.h"

namespace pinfer::jinja {

std::span<const Method> string_case_methods();    // predicates and case
std::span<const Method> string_search_methods();  // finding, splitting, replacing, padding

}  // namespace pinfer::jinja
