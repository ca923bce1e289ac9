// str.split(), str.find(), str.replace(), str.center(), ...
#include <algorithm>

#include "template/builtins/brace_format.h"
#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/builtins/string_methods.h"
#include "template/text/python_text.h"
#include "template/text/utf8.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"

namespace pinfer::jinja {

namespace {

// An argument that becomes part of the receiver: escaped if the receiver is markup.
std::string inserted_text(Heap& heap, const Value& receiver, const Value& argument,
                          std::string_view what) {
  const std::string& text = require_text(argument, what);
  return receiver.string().is_markup ? escaped(heap, argument) : text;
}

template <Side kSide>
Value strip_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("strip", arguments, {"chars"});
  context.heap.spend_bytes(receiver.text().size());
  if (bound[0].is_missing() || bound[0].is_none()) {
    return text_like(context.heap, receiver, std::string(strip(receiver.text(), kSide)));
  }
  const std::string& chars = require_text(bound[0], "strip arg");
  return text_like(context.heap, receiver, std::string(strip_chars(receiver.text(), chars, kSide)));
}

Value text_list(Heap& heap, const Value& receiver, const std::vector<std::string_view>& parts) {
  heap.check_num_items(parts.size());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) {
    items.push_back(text_like(heap, receiver, std::string(part)));
  }
  return make_list(heap, std::move(items));
}

template <bool kFromRight>
Value split_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("split", arguments, {"sep", "maxsplit"});
  Heap& heap = context.heap;
  const std::string& text = receiver.text();
  heap.spend_bytes(text.size());
  int64_t max_splits = bound[1].is_missing() ? -1 : require_int(bound[1], "split");
  if (bound[0].is_missing() || bound[0].is_none()) {
    return text_list(
        heap, receiver,
        kFromRight ? rsplit_whitespace(text, max_splits) : split_whitespace(text, max_splits));
  }
  const std::string& separator = require_text(bound[0], "split: the separator");
  if (separator.empty()) throw RenderError("empty separator");
  return text_list(
      heap, receiver,
      kFromRight ? rsplit(text, separator, max_splits) : split(text, separator, max_splits));
}

Value splitlines_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("splitlines", arguments, {"keepends"});
  context.heap.spend_bytes(receiver.text().size());
  return text_list(context.heap, receiver, split_lines(receiver.text(), flag(bound[0])));
}

template <bool kFromRight>
Value partition_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("partition", arguments, {"sep"}, 1);
  Heap& heap = context.heap;
  const std::string& text = receiver.text();
  const std::string& separator = require_text(bound[0], "partition: the separator");
  if (separator.empty()) throw RenderError("empty separator");
  heap.spend_bytes(text.size());
  size_t found = kFromRight ? rfind_text(text, separator) : find_text(text, separator);
  std::string before, middle, after;
  if (found == std::string::npos) {
    (kFromRight ? after : before) = text;
  } else {
    before = text.substr(0, found);
    middle = separator;
    after = text.substr(found + separator.size());
  }
  return make_tuple(heap, {text_like(heap, receiver, before), text_like(heap, receiver, middle),
                           text_like(heap, receiver, after)});
}

Value replace_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = context.heap;
  const std::string& old_text = require_text(bound[0], "replace() argument 1");
  std::string new_text = inserted_text(heap, receiver, bound[1], "replace() argument 2");
  int64_t max_count = bound[2].is_missing() ? -1 : require_int(bound[2], "replace");
  heap.spend_bytes(receiver.text().size());
  heap.check_text_size(replaced_size(receiver.text(), old_text, new_text, max_count));
  return text_like(heap, receiver, replace(receiver.text(), old_text, new_text, max_count));
}

// The part of the receiver that optional start and end arguments select.
struct SearchRange {
  std::string_view text;
  int64_t start = 0;  // characters before it
  bool valid = true;  // false: start lies beyond the end, nothing is found there
};

SearchRange search_range(Heap& heap, const Value& receiver, const Value& start, const Value& end) {
  heap.spend_bytes(receiver.text().size());
  int64_t length = receiver.string().num_chars;
  auto clamp = [&](const Value& bound, int64_t open) {
    std::optional<int64_t> index = optional_int(bound, "slice indices");
    if (!index.has_value()) return open;
    return *index < 0 ? std::max<int64_t>(*index < -length ? 0 : *index + length, 0) : *index;
  };
  int64_t from = clamp(start, 0), to = std::min(clamp(end, length), length);
  if (from > length || from > to) return {{}, from, false};
  std::string_view text = receiver.text();
  size_t begin = utf8_offset(text, from);
  text = text.substr(begin);
  return {text.substr(0, utf8_offset(text, to - from)), from, true};
}

template <bool kFromRight>
int64_t find_index(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& part = require_text(bound[0], "find: the argument");
  SearchRange range = search_range(context.heap, receiver, bound[1], bound[2]);
  if (!range.valid) return -1;
  size_t found = kFromRight ? rfind_text(range.text, part) : find_text(range.text, part);
  if (found == std::string_view::npos) return -1;
  return range.start + utf8_length(range.text.substr(0, found));
}

template <bool kFromRight>
Value find_method_(RenderContext& context, const Value& receiver, Arguments& arguments) {
  return Value::integer(find_index<kFromRight>(context, receiver, arguments));
}

template <bool kFromRight>
Value index_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  int64_t index = find_index<kFromRight>(context, receiver, arguments);
  if (index < 0) throw RenderError("substring not found");
  return Value::integer(index);
}

Value count_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& part = require_text(bound[0], "count: the argument");
  SearchRange range = search_range(context.heap, receiver, bound[1], bound[2]);
  return Value::integer(range.valid ? count(range.text, part) : 0);
}

template <bool kAtEnd>
Value affix_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  const char* name = kAtEnd ? "endswith" : "startswith";
  auto bound = bind_arguments(name, arguments, {"affix", "start", "end"}, 1);
  SearchRange range = search_range(context.heap, receiver, bound[1], bound[2]);
  std::vector<Value> affixes =
      bound[0].is(Type::TUPLE) ? bound[0].items() : std::vector<Value>{bound[0]};
  for (const Value& affix : affixes) {
    const std::string& text =
        require_text(affix, std::string(name) + " first arg must be str or a tuple of str:");
    if (!range.valid) continue;
    if (kAtEnd ? range.text.ends_with(text) : range.text.starts_with(text)) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

template <bool kSuffix>
Value remove_affix_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("removeprefix", arguments, {"affix"}, 1);
  const std::string& affix = require_text(bound[0], "removeprefix() argument");
  std::string_view text = receiver.text();
  bool found = kSuffix ? text.ends_with(affix) : text.starts_with(affix);
  if (found && kSuffix) text.remove_suffix(affix.size());
  if (found && !kSuffix) text.remove_prefix(affix.size());
  return text_like(context.heap, receiver, std::string(text));
}

// Pads to a width; `left_of` says how much of the padding goes to the left.
Value pad(RenderContext& context, const Value& receiver, Arguments& arguments,
          int64_t (*left_of)(int64_t missing, int64_t width)) {
  auto bound = bind_arguments("center", arguments, {"width", "fillchar"}, 1);
  Heap& heap = context.heap;
  int64_t width = require_int(bound[0], "width");
  std::string fill =
      bound[1].is_missing() ? " " : inserted_text(heap, receiver, bound[1], "the fill character");
  if (utf8_length(fill) != 1) {
    throw RenderError("The fill character must be exactly one character long");
  }
  int64_t missing = width - receiver.string().num_chars;
  if (width <= receiver.string().num_chars) return receiver;
  heap.check_text_size(static_cast<size_t>(missing));
  heap.check_text_size(receiver.text().size() + static_cast<size_t>(missing) * fill.size());
  heap.spend_bytes(static_cast<size_t>(missing) * fill.size());
  int64_t left = left_of(missing, width);
  std::string result;
  for (int64_t i = 0; i < left; ++i) result += fill;
  result += receiver.text();
  for (int64_t i = left; i < missing; ++i) result += fill;
  return text_like(heap, receiver, std::move(result));
}

Value center_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  return pad(context, receiver, arguments,
             [](int64_t missing, int64_t width) { return missing / 2 + (missing & width & 1); });
}

Value ljust_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  return pad(context, receiver, arguments, [](int64_t, int64_t) { return int64_t{0}; });
}

Value rjust_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  return pad(context, receiver, arguments, [](int64_t missing, int64_t) { return missing; });
}

Value zfill_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("zfill", arguments, {"width"}, 1);
  int64_t width = require_int(bound[0], "zfill");
  int64_t length = receiver.string().num_chars;
  if (width <= length) return receiver;
  context.heap.check_text_size(static_cast<size_t>(width));
  std::string text = receiver.text();
  bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  text.insert(has_sign ? 1 : 0, static_cast<size_t>(width - length), '0');
  return text_like(context.heap, receiver, std::move(text));
}

Value expandtabs_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("expandtabs", arguments, {"tabsize"});
  int64_t size = bound[0].is_missing() ? 8 : require_int(bound[0], "expandtabs");
  const std::string& text = receiver.text();
  size_t tabs = static_cast<size_t>(std::count(text.begin(), text.end(), '\t'));
  size_t most = 0;
  bool too_large = size > 0 && (__builtin_mul_overflow(tabs, static_cast<size_t>(size), &most) ||
                                most > SIZE_MAX / 2);
  if (too_large) most = SIZE_MAX / 2;
  context.heap.check_text_size(most + text.size());
  context.heap.spend_bytes(most + text.size());
  return text_like(context.heap, receiver, expand_tabs(text, size));
}

Value join_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("join", arguments, {"iterable"}, 1);
  Heap& heap = context.heap;
  std::string result;
  Iteration iteration(heap, bound[0]);
  Value item;
  for (int64_t index = 0; iteration.next(item); ++index) {
    if (!item.is_string() && !receiver.string().is_markup) {
      throw RenderError("sequence item " + std::to_string(index) + ": expected str instance, " +
                        type_name(item) + " found");
    }
    std::string text = receiver.string().is_markup ? escaped(heap, item) : item.text();
    heap.check_text_size(result.size() + text.size() + receiver.text().size());
    heap.spend_bytes(text.size() + receiver.text().size());
    if (index > 0) result += receiver.text();
    result += text;
  }
  return text_like(heap, receiver, std::move(result));
}

Value format_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  return brace_format(context, receiver, arguments);
}

Value format_map_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  auto bound = bind_arguments("format_map", arguments, {"mapping"}, 1);
  if (!bound[0].is_dict()) throw RenderError("format_map() requires a dict");
  Arguments named;
  for (const auto& [key, value] : bound[0].dict().entries()) {
    if (key.is_string()) named.named.emplace_back(key.text(), value);
  }
  return brace_format(context, receiver, named);
}

constexpr Method kMethods[] = {
    {"strip", strip_method<Side::BOTH>},
    {"lstrip", strip_method<Side::LEFT>},
    {"rstrip", strip_method<Side::RIGHT>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines_method},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"replace", replace_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"find", find_method_<false>},
    {"rfind", find_method_<true>},
    {"index", index_method<false>},
    {"rindex", index_method<true>},
    {"count", count_method},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"join", join_method},
    {"center", center_method},
    {"ljust", ljust_method},
    {"rjust", rjust_method},
    {"zfill", zfill_method},
    {"expandtabs", expandtabs_method},
    {"format", format_method},
    {"format_map", format_map_method},
};

}  // namespace

std::span<const Method> string_search_methods() { return kMethods; }

}  // namespace pinfer::jinja
