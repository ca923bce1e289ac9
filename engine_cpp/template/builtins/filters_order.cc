// Filters that compare elements: sort, dictsort, groupby, unique, min, max.
#include <algorithm>

#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/text/python_text.h"
#include "template/value/compare.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

struct Keyed {
  Value key;
  Value item;
};

void sort_keyed(Heap& heap, std::vector<Keyed>& keyed, bool reverse) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(heap, b.key, a.key) : less(heap, a.key, b.key);
  });
}

std::vector<Value> items_of(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

// sort(attribute="a,b") compares several attributes in turn.
std::vector<AttributePath> sort_paths(Heap& heap, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    paths.emplace_back(heap, attribute);
    return paths;
  }
  for (std::string_view part : split(attribute.text(), ",", -1)) {
    paths.emplace_back(heap, make_string(heap, std::string(part)));
  }
  return paths;
}

Value filter_sort(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Heap& heap = context.heap;
  bool fold = !flag(bound[1]);
  std::vector<AttributePath> paths = sort_paths(heap, bound[2]);
  std::vector<Keyed> keyed;
  for (Value& item : collect(heap, input)) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      Value key = path.look_up(context, item);
      keys.push_back(fold ? ignore_case(heap, key) : key);
    }
    keyed.push_back({make_list(heap, std::move(keys)), std::move(item)});
  }
  sort_keyed(heap, keyed, flag(bound[0]));
  return make_list(heap, items_of(std::move(keyed)));
}

Value filter_dictsort(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  Heap& heap = context.heap;
  std::string by = bound[1].is_missing() ? "key" : require_text(bound[1], "dictsort: by");
  if (by != "key" && by != "value") {
    throw RenderError("You can only sort by either \"key\" or \"value\"");
  }
  check_defined(input);
  if (!input.is_dict()) {
    throw RenderError("'" + type_name(input) + "' object has no attribute 'items'");
  }
  bool fold = !flag(bound[0]);
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict().entries()) {
    const Value& sorted_by = by == "key" ? key : value;
    keyed.push_back(
        {fold ? ignore_case(heap, sorted_by) : sorted_by, make_tuple(heap, {key, value})});
  }
  sort_keyed(heap, keyed, flag(bound[2]));
  return make_list(heap, items_of(std::move(keyed)));
}

Value filter_groupby(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  Heap& heap = context.heap;
  AttributePath path(heap, bound[0]);
  bool fold = !flag(bound[2]);
  std::vector<Keyed> keyed;
  for (Value& item : collect(heap, input)) {
    Value key = path.look_up(context, item, bound[1]);
    keyed.push_back({fold ? ignore_case(heap, key) : key, std::move(item)});
  }
  sort_keyed(heap, keyed, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    size_t end = begin;
    std::vector<Value> members;
    while (end < keyed.size() && equal_keys(heap, keyed[end].key, keyed[begin].key)) {
      members.push_back(keyed[end++].item);
    }
    if (members.empty()) members.push_back(keyed[end++].item);  // not-a-number equals nothing
    // The group is named by its first member, in that member's case.
    Value name = path.look_up(context, members.front(), bound[1]);
    groups.push_back(make_tuple(heap, {name, make_list(heap, std::move(members))}, true));
    begin = end;
  }
  return make_list(heap, std::move(groups));
}

Value filter_unique(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("unique", arguments, {"case_sensitive", "attribute"});
  bool fold = !flag(bound[0]);
  auto path = std::make_shared<AttributePath>(context.heap, bound[1]);
  auto iteration = std::make_shared<Iteration>(context.heap, input);
  auto seen = std::make_shared<DictObject>();
  return make_generator(context, input.depth(),
                        [&context, fold, path, iteration, seen](Value& element) {
                          while (iteration->next(element)) {
                            Value key = path->look_up(context, element);
                            if (fold) key = ignore_case(context.heap, key);
                            check_hashable(key);
                            if (seen->find(context.heap, key) != nullptr) continue;
                            seen->set(context.heap, key, Value::none());
                            return true;
                          }
                          return false;
                        });
}

template <bool kMax>
Value filter_extreme(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments(kMax ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  Heap& heap = context.heap;
  bool fold = !flag(bound[0]);
  AttributePath path(heap, bound[1]);
  Iteration iteration(heap, input);
  Value item, best, best_key;
  while (iteration.next(item)) {
    Value key = path.look_up(context, item);
    if (fold) key = ignore_case(heap, key);
    CompareOperator better = kMax ? CompareOperator::GT : CompareOperator::LT;
    if (best.is_missing() || compare(context, better, key, best_key)) {
      best = item;
      best_key = key;
    }
  }
  if (!best.is_missing()) return best;
  return make_undefined(heap, "No aggregated item, sequence was empty.");
}

constexpr Filter kOrderFilters[] = {
    {"sort", filter_sort},     {"dictsort", filter_dictsort},  {"groupby", filter_groupby},
    {"unique", filter_unique}, {"min", filter_extreme<false>}, {"max", filter_extreme<true>},
};

}  // namespace

std::span<const Filter> order_filters() { return kOrderFilters; }

}  // namespace pinfer::jinja
