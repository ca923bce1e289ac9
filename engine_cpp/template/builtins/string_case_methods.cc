// str.upper(), str.isalpha(), ...: what looks at one character after the other.
#include <array>

#include "template/builtins/convert.h"
#include "template/builtins/string_methods.h"
#include "template/text/unicode.h"
#include "template/text/utf8.h"

namespace pinfer::jinja {

namespace {

template <std::string (*kMap)(std::string_view)>
Value map_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  bind_arguments("str method", arguments, {});
  context.heap.spend_bytes(receiver.text().size() * 4);
  return text_like(context.heap, receiver, kMap(receiver.text()));
}

template <bool (*kPredicate)(std::u32string_view)>
Value predicate_method(RenderContext& context, const Value& receiver, Arguments& arguments) {
  bind_arguments("str method", arguments, {});
  context.heap.spend_bytes(receiver.text().size() * 4);
  return Value::boolean(kPredicate(to_code_points(receiver.text())));
}

template <CharClass... kClasses>
bool all_in(std::u32string_view text) {
  for (char32_t c : text) {
    if (!(is_in_class(c, kClasses) || ...)) return false;
  }
  return !text.empty();
}

bool is_printable(std::u32string_view text) {
  return text.empty() || all_in<CharClass::PRINTABLE>(text);
}

bool is_ascii(std::u32string_view text) {
  for (char32_t c : text) {
    if (c >= 0x80) return false;
  }
  return true;
}

template <CharClass kWanted, CharClass kUnwanted>
bool is_case(std::u32string_view text) {
  bool found = false;
  for (char32_t c : text) {
    if (is_in_class(c, kUnwanted) || is_in_class(c, CharClass::TITLE)) return false;
    found |= is_in_class(c, kWanted);
  }
  return found;
}

bool is_title(std::u32string_view text) {
  bool found = false, after_cased = false;
  for (char32_t c : text) {
    bool starts = is_in_class(c, CharClass::UPPER) || is_in_class(c, CharClass::TITLE);
    bool continues = is_in_class(c, CharClass::LOWER);
    if ((starts && after_cased) || (continues && !after_cased)) return false;
    after_cased = starts || continues;
    found |= after_cased;
  }
  return found;
}

constexpr Method kMethods[] = {
    {"upper", map_method<to_upper>},
    {"lower", map_method<to_lower>},
    {"title", map_method<to_title>},
    {"capitalize", map_method<capitalize>},
    {"swapcase", map_method<swap_case>},
    {"casefold", map_method<to_casefold>},
    {"isalpha", predicate_method<all_in<CharClass::ALPHA>>},
    {"isalnum",
     predicate_method<
         all_in<CharClass::ALPHA, CharClass::DECIMAL, CharClass::DIGIT, CharClass::NUMERIC>>},
    {"isdecimal", predicate_method<all_in<CharClass::DECIMAL>>},
    {"isdigit", predicate_method<all_in<CharClass::DIGIT>>},
    {"isnumeric", predicate_method<all_in<CharClass::NUMERIC>>},
    {"isspace", predicate_method<all_in<CharClass::SPACE>>},
    {"isprintable", predicate_method<is_printable>},
    {"isascii", predicate_method<is_ascii>},
    {"islower", predicate_method<is_case<CharClass::LOWER, CharClass::UPPER>>},
    {"isupper", predicate_method<is_case<CharClass::UPPER, CharClass::LOWER>>},
    {"istitle", predicate_method<is_title>},
};

}  // namespace

std::span<const Method> string_case_methods() { return kMethods; }

std::span<const Method> string_methods() {
  static const std::vector<Method> methods = [] {
    std::vector<Method> all;
    for (std::span<const Method> group : {string_search_methods(), string_case_methods()}) {
      all.insert(all.end(), group.begin(), group.end());
    }
    return all;
  }();
  return methods;
}

}  // namespace pinfer::jinja
