#include "template/builtins/brace_format.h"

#include <algorithm>

#include "template/builtins/attributes.h"
#include "template/text/number_text.h"
#include "template/text/python_text.h"
#include "template/text/utf8.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

// Fields within a field's spec are one level deep, as in Python.
constexpr int kMaxNesting = 2;

class BraceFormatter {
 public:
  BraceFormatter(RenderContext& context, const Arguments& arguments)
      : context_(context), heap_(context.heap), arguments_(arguments) {}

  std::string run(std::string_view text, int nesting) {
    if (nesting < 0) throw RenderError("Max string recursion exceeded");
    std::string out;
    for (size_t i = 0; i < text.size();) {
      char c = text[i];
      bool doubled = i + 1 < text.size() && text[i + 1] == c;
      if ((c == '{' || c == '}') && doubled) {
        out += c;
        i += 2;
      } else if (c == '}') {
        throw RenderError("Single '}' encountered in format string");
      } else if (c == '{') {
        size_t end = field_end(text, i + 1);
        out += field(text.substr(i + 1, end - i - 1), nesting);
        i = end + 1;
      } else {
        out += c;
        ++i;
      }
      heap_.spend(1);
      heap_.check_text_size(out.size());
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view text, size_t begin) {
    int open = 1;
    for (size_t i = begin; i < text.size(); ++i) {
      if (text[i] == '{') ++open;
      if (text[i] == '}' && --open == 0) return i;
    }
    throw RenderError("expected '}' before end of string");
  }

  // name[!conversion][:spec]
  std::string field(std::string_view text, int nesting) {
    size_t name_end = 0;
    for (bool in_index = false; name_end < text.size(); ++name_end) {
      char c = text[name_end];
      if (c == '[') in_index = true;
      if (c == ']') in_index = false;
      if (!in_index && (c == '!' || c == ':')) break;
    }
    Value value = look_up(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) {
        throw RenderError("expected ':' after conversion specifier");
      }
      value = convert(value, rest[1]);
      rest.remove_prefix(2);
    }
    if (!rest.empty()) rest.remove_prefix(1);
    return format_value(heap_, value, run(rest, nesting - 1));
  }

  Value convert(const Value& value, char conversion) {
    if (conversion == 's') return make_string(heap_, to_str(heap_, value));
    if (conversion != 'r') {
      throw RenderError("Unknown conversion specifier " + std::string(1, conversion));
    }
    std::string out;
    append_repr(heap_, out, value);
    return make_string(heap_, std::move(out));
  }

  Value look_up(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first_value(name.substr(0, end));
    while (end < name.size()) {
      if (name[end] == '.') {
        size_t next = std::min(name.find_first_of(".[", end + 1), name.size());
        if (next == end + 1) throw RenderError("Empty attribute in format string");
        value = get_attribute(context_, value, name.substr(end + 1, next - end - 1));
        end = next;
        continue;
      }
      size_t close = name[end] == '[' ? name.find(']', end) : std::string_view::npos;
      if (close == std::string_view::npos || close == end + 1) {
        throw RenderError("Missing ']' in format string");
      }
      std::string_view index = name.substr(end + 1, close - end - 1);
      value = get_item(context_, value, index_value(index));
      end = close + 1;
      if (end < name.size() && name[end] != '.' && name[end] != '[') {
        throw RenderError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value index_value(std::string_view text) {
    if (is_number(text)) return Value::integer(position(text));
    return make_string(heap_, std::string(text));
  }

  // REQUIRES is_number(text).
  static int64_t position(std::string_view text) {
    std::optional<int64_t> value = parse_int(text, 10).value;
    if (!value.has_value()) throw RenderError("Too many decimal digits in format string");
    return *value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  Value first_value(std::string_view name) {
    if (name.empty() || is_number(name)) {
      bool automatic = name.empty();
      if (numbering_.has_value() && *numbering_ != automatic) {
        throw RenderError("cannot switch between manual and automatic field numbering");
      }
      numbering_ = automatic;
      size_t index = automatic ? next_++ : static_cast<size_t>(position(name));
      if (index >= arguments_.positional.size()) {
        throw RenderError("Replacement index " + std::to_string(index) +
                          " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    throw RenderError("the format names the missing key '" + std::string(name) + "'");
  }

  RenderContext& context_;
  Heap& heap_;
  const Arguments& arguments_;
  std::optional<bool> numbering_;  // automatic?
  size_t next_ = 0;
};

}  // namespace

Value brace_format(RenderContext& context, const Value& format, const Arguments& arguments) {
  std::string text = BraceFormatter(context, arguments).run(format.text(), kMaxNesting);
  return make_string(context.heap, std::move(text), format.string().is_markup);
}

}  // namespace pinfer::jinja
