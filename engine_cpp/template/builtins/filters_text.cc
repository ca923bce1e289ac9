// Filters that make text from text.
#include <algorithm>

#include "template/builtins/brace_format.h"
#include "template/builtins/convert.h"
#include "template/builtins/operators.h"
#include "template/builtins/percent_format.h"
#include "template/text/python_text.h"
#include "template/text/unicode.h"
#include "template/text/utf8.h"
#include "template/value/dict.h"
#include "template/value/iterate.h"
#include "template/value/json_text.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

template <std::string (*kMap)(std::string_view)>
Value map_case(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("filter", arguments, {});
  Value text = soft_string(context.heap, input);
  context.heap.spend_bytes(text.text().size() * 16);
  return text_like(context.heap, text, kMap(text.text()));
}

bool starts_word(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' ||
         is_in_class(c, CharClass::SPACE);
}

// The title filter: words start after spaces, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::u32string code_points = to_code_points(text);
  std::string result;
  for (size_t begin = 0; begin < code_points.size();) {
    bool separators = starts_word(code_points[begin]);
    size_t end = begin;
    while (end < code_points.size() && starts_word(code_points[end]) == separators) ++end;
    std::u32string_view word(code_points.data() + begin, end - begin);
    result += to_upper(from_code_points(word.substr(0, 1)));
    result += to_lower(from_code_points(word.substr(1)));
    begin = end;
  }
  return result;
}

Value filter_trim(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("trim", arguments, {"chars"});
  Value text = soft_string(context.heap, input);
  context.heap.spend_bytes(text.text().size());
  if (bound[0].is_missing() || bound[0].is_none()) {
    return text_like(context.heap, text, std::string(strip(text.text())));
  }
  const std::string& chars = require_text(bound[0], "strip arg");
  return text_like(context.heap, text, std::string(strip_chars(text.text(), chars, Side::BOTH)));
}

Value filter_replace(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = context.heap;
  std::string text = to_str(heap, input);
  std::string old_text = to_str(heap, bound[0]), new_text = to_str(heap, bound[1]);
  int64_t max_count = optional_int(bound[2], "replace").value_or(-1);
  heap.spend_bytes(text.size());
  heap.check_text_size(replaced_size(text, old_text, new_text, max_count));
  return make_string(heap, replace(text, old_text, new_text, max_count));
}

Value filter_string(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("string", arguments, {});
  return soft_string(context.heap, input);
}

Value filter_center(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("center", arguments, {"width"});
  Value width = bound[0].is_missing() ? Value::integer(80) : bound[0];
  Value text = soft_string(context.heap, input);
  Arguments call;
  call.positional.push_back(width);
  return find_method(string_methods(), "center")->call(context, text, call);
}

Value filter_indent(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("indent", arguments, {"width", "first", "blank"});
  Heap& heap = context.heap;
  std::string text = require_text(input, "indent: the value") + "\n";
  std::string indention(4, ' ');
  if (bound[0].is_string()) {
    indention = bound[0].text();
  } else if (!bound[0].is_missing()) {
    int64_t width = require_int(bound[0], "indent");
    heap.check_text_size(static_cast<size_t>(std::max<int64_t>(width, 0)));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  bool blank = flag(bound[2]);
  std::string result = flag(bound[1]) ? indention : "";
  bool is_first = true;
  for (std::string_view line : split_lines(text, false)) {
    heap.check_text_size(result.size() + line.size() + indention.size());
    heap.spend_bytes(line.size() + indention.size());
    if (!is_first) result += "\n";
    if (!is_first && (blank || !line.empty())) result += indention;
    result += line;
    is_first = false;
  }
  return text_like(heap, input, std::move(result));
}

Value filter_truncate(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const std::string& text = require_text(input, "truncate: the value");
  int64_t length = optional_int(bound[0], "truncate").value_or(255);
  std::string end = bound[2].is_missing() ? "..." : require_text(bound[2], "truncate: end");
  int64_t leeway = optional_int(bound[3], "truncate").value_or(5);
  int64_t end_length = utf8_length(end);
  if (length < end_length) {
    throw RenderError("expected length >= " + std::to_string(end_length) + ", got " +
                      std::to_string(length));
  }
  if (leeway < 0) throw RenderError("expected leeway >= 0, got " + std::to_string(leeway));
  if (input.string().num_chars - leeway <= length) return input;
  context.heap.spend_bytes(text.size());
  std::string cut = text.substr(0, utf8_offset(text, length - end_length));
  if (!flag(bound[1])) {
    size_t space = cut.rfind(' ');
    if (space != std::string::npos) cut.resize(space);
  }
  return text_like(context.heap, input, cut + end);
}

Value filter_wordcount(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("wordcount", arguments, {});
  Value text = soft_string(context.heap, input);
  context.heap.spend_bytes(text.text().size() * 16);
  int64_t words = 0;
  bool in_word = false;
  for (char32_t c : to_code_points(text.text())) {
    bool is_word = c == '_' || is_in_class(c, CharClass::ALPHA) ||
                   is_in_class(c, CharClass::NUMERIC) || is_in_class(c, CharClass::DIGIT);
    if (is_word && !in_word) ++words;
    in_word = is_word;
  }
  return Value::integer(words);
}

Value filter_escape(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("escape", arguments, {});
  return make_string(context.heap, escaped(context.heap, input), true);
}

Value filter_forceescape(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("forceescape", arguments, {});
  Value plain = make_string(context.heap, to_str(context.heap, input));
  return make_string(context.heap, escaped(context.heap, plain), true);
}

Value filter_safe(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("safe", arguments, {});
  return make_string(context.heap, to_str(context.heap, input), true);
}

std::string url_quote(Heap& heap, const Value& value, bool for_query) {
  std::string quoted;
  for (char c : to_str(heap, value)) {
    bool safe = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !for_query);
    static constexpr char kHex[] = "0123456789ABCDEF";
    if (safe) {
      quoted += c;
    } else if (c == ' ' && for_query) {
      quoted += '+';
    } else {
      quoted += '%';
      quoted += kHex[static_cast<unsigned char>(c) >> 4];
      quoted += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
  heap.spend_bytes(quoted.size());
  return quoted;
}

Value filter_urlencode(RenderContext& context, const Value& input, Arguments& arguments) {
  bind_arguments("urlencode", arguments, {});
  Heap& heap = context.heap;
  if (input.is_string() || !is_iterable(input)) {
    return make_string(heap, url_quote(heap, input, false));
  }
  Value pairs = input.is_dict() ? make_dict_view(heap, input, DictViewObject::Kind::ITEMS) : input;
  std::string query;
  Iteration iteration(heap, pairs);
  Value pair;
  while (iteration.next(pair)) {
    std::vector<Value> parts = collect(heap, pair);
    if (parts.size() != 2) throw RenderError("urlencode: expected pairs of key and value");
    if (!query.empty()) query += '&';
    query += url_quote(heap, parts[0], true) + '=' + url_quote(heap, parts[1], true);
    heap.check_text_size(query.size());
  }
  return make_string(heap, std::move(query));
}

Value filter_xmlattr(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound = bind_arguments("xmlattr", arguments, {"autospace"});
  Heap& heap = context.heap;
  check_defined(input);
  if (!input.is_dict()) throw RenderError("xmlattr: expected a dict, found " + type_name(input));
  std::string result;
  for (const auto& [key, value] : input.dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    const std::string& name = require_text(key, "xmlattr: a key");
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      throw RenderError("Invalid character in attribute name: '" + name + "'");
    }
    if (!result.empty()) result += ' ';
    result += escaped(heap, key) + "=\"" + escaped(heap, value) + '"';
    heap.check_text_size(result.size());
  }
  if (flag(bound[0], true) && !result.empty()) result.insert(result.begin(), ' ');
  return make_string(heap, std::move(result));
}

Value filter_format(RenderContext& context, const Value& input, Arguments& arguments) {
  Heap& heap = context.heap;
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    throw RenderError("can't handle positional and keyword arguments at the same time");
  }
  Value format = soft_string(heap, input);
  if (arguments.named.empty()) {
    return percent_format(heap, format, make_tuple(heap, std::move(arguments.positional)));
  }
  DictBuilder values(heap);
  for (auto& [name, value] : arguments.named) values.set(name, std::move(value));
  return percent_format(heap, format, values.build());
}

void read_separators(Heap& heap, const Value& separators, JsonStyle& style) {
  if (separators.is_missing() || separators.is_none()) {
    if (style.indent.has_value()) style.item_separator = ",";
    return;
  }
  std::vector<Value> parts = collect(heap, separators);
  if (parts.size() != 2) throw RenderError("tojson: separators must be a pair of texts");
  style.item_separator = require_text(parts[0], "tojson: a separator");
  style.key_separator = require_text(parts[1], "tojson: a separator");
}

Value filter_tojson(RenderContext& context, const Value& input, Arguments& arguments) {
  auto bound =
      bind_arguments("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Heap& heap = context.heap;
  JsonStyle style;
  style.ensure_ascii = flag(bound[0]);
  style.sort_keys = flag(bound[3]);
  if (bound[1].is_string()) {
    style.indent = bound[1].text();
  } else if (std::optional<int64_t> width = optional_int(bound[1], "tojson: indent")) {
    size_t spaces = static_cast<size_t>(std::max<int64_t>(*width, 0));
    heap.check_text_size(spaces);
    style.indent = std::string(spaces, ' ');
  }
  read_separators(heap, bound[2], style);
  return make_string(heap, to_json(heap, input, style));
}

constexpr Filter kTextFilters[] = {
    {"upper", map_case<to_upper>},
    {"lower", map_case<to_lower>},
    {"capitalize", map_case<capitalize>},
    {"title", map_case<title_words>},
    {"trim", filter_trim},
    {"replace", filter_replace},
    {"string", filter_string},
    {"center", filter_center},
    {"indent", filter_indent},
    {"truncate", filter_truncate},
    {"wordcount", filter_wordcount},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"safe", filter_safe},
    {"urlencode", filter_urlencode},
    {"xmlattr", filter_xmlattr},
    {"format", filter_format},
    {"tojson", filter_tojson},
};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace pinfer::jinja
