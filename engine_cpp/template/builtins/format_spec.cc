// format(value, spec): Python's format specification language for text and numbers.
#include <algorithm>
#include <cmath>
#include <optional>

#include "template/builtins/brace_format.h"
#include "template/text/number_format.h"
#include "template/text/utf8.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

constexpr int64_t kMaxWidth = 1'000'000;

// [[fill]align][sign][#][0][width][,_][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ = or 0
  bool zero = false;
  bool has_sign = false;
  int64_t width = 0;
  NumberFormat number;
};

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

class SpecParser {
 public:
  explicit SpecParser(std::string_view text) : text_(text) {}

  FormatSpec parse() {
    read_alignment();
    if (accept('+'))
      set_sign('+');
    else if (accept('-'))
      set_sign('-');
    else if (accept(' '))
      set_sign(' ');
    spec_.number.alternate = accept('#');
    if (accept('0')) {
      spec_.zero = true;
      if (spec_.align == 0) spec_.fill = "0";
    }
    spec_.width = read_number().value_or(0);
    if (accept(','))
      spec_.number.grouping = ',';
    else if (accept('_'))
      spec_.number.grouping = '_';
    if (accept('.')) {
      spec_.number.precision = read_number();
      if (!spec_.number.precision.has_value())
        throw RenderError("Format specifier missing precision");
    }
    if (position_ < text_.size()) spec_.number.type = text_[position_++];
    if (position_ != text_.size()) {
      throw RenderError("Invalid format specifier '" + std::string(text_) + "'");
    }
    return spec_;
  }

 private:
  void set_sign(char sign) {
    spec_.number.sign = sign;
    spec_.has_sign = true;
  }

  void read_alignment() {
    if (text_.empty()) return;
    size_t fill = utf8_char_length(text_, 0);
    if (fill < text_.size() && is_align(text_[fill])) {
      spec_.fill = std::string(text_.substr(0, fill));
      spec_.align = text_[fill];
      position_ = fill + 1;
    } else if (is_align(text_[0])) {
      spec_.align = text_[0];
      position_ = 1;
    }
  }

  bool accept(char c) {
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  std::optional<int64_t> read_number() {
    size_t begin = position_;
    int64_t number = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      number = number * 10 + (text_[position_++] - '0');
      if (number > kMaxWidth) throw RenderError("Too many decimal digits in format string");
    }
    return position_ == begin ? std::nullopt : std::optional(number);
  }

  std::string_view text_;
  size_t position_ = 0;
  FormatSpec spec_;
};

std::string padded(Heap& heap, const std::string& text, const FormatSpec& spec,
                   char default_align) {
  int64_t missing = spec.width - utf8_length(text);
  if (missing <= 0) return text;
  char align = spec.align == 0 ? default_align : spec.align;
  size_t total = static_cast<size_t>(missing);
  size_t left = align == '<' ? 0 : align == '^' ? total / 2 : total;
  heap.check_text_size(text.size() + total * spec.fill.size());
  heap.spend_bytes(total * spec.fill.size());
  std::string result;
  for (size_t i = 0; i < left; ++i) result += spec.fill;
  result += text;
  for (size_t i = left; i < total; ++i) result += spec.fill;
  return result;
}

[[noreturn]] void fail_type(const FormatSpec& spec, const Value& value) {
  throw RenderError("Unknown format code '" + std::string(1, spec.number.type) +
                    "' for object of type '" + type_name(value) + "'");
}

std::string format_text(Heap& heap, const Value& value, FormatSpec spec) {
  if (spec.number.type != 0 && spec.number.type != 's') fail_type(spec, value);
  if (spec.align == '=') throw RenderError("'=' alignment not allowed in string format specifier");
  if (spec.has_sign) throw RenderError("Sign not allowed in string format specifier");
  if (spec.number.alternate) {
    throw RenderError("Alternate form (#) not allowed in string format specifier");
  }
  if (spec.number.grouping != 0) throw RenderError("Cannot specify ',' or '_' with 's'.");
  std::string text = value.text();
  if (spec.number.precision.has_value()) text.resize(utf8_offset(text, *spec.number.precision));
  return padded(heap, text, spec, '<');
}

std::string place_number(Heap& heap, FormattedNumber number, const FormatSpec& spec,
                         int group_size) {
  bool zeros = spec.align == '=' || (spec.align == 0 && spec.zero);
  size_t width = static_cast<size_t>(spec.width);
  size_t digits_width = width > number.prefix.size() ? width - number.prefix.size() : 0;
  bool zero_fill = zeros && spec.fill == "0";
  if (spec.number.grouping != 0) {
    number.digits =
        group_digits(number.digits, spec.number.grouping, group_size, zero_fill ? digits_width : 0);
  }
  if (zeros && number.digits.size() < digits_width) {
    FormatSpec inner;
    inner.fill = spec.fill;
    inner.width = static_cast<int64_t>(digits_width);
    number.digits = padded(heap, number.digits, inner, '>');
  }
  FormatSpec outer = spec;
  if (zeros) outer.align = '>';
  return padded(heap, number.prefix + number.digits, outer, '>');
}

std::string format_number(Heap& heap, const Value& value, FormatSpec spec) {
  char type = spec.number.type;
  bool float_type = type != 0 && std::string_view("eEfFgG%").find(type) != std::string_view::npos;
  if (spec.number.precision.value_or(0) > kMaxPrecision) throw RenderError("precision too big");
  if (value.is(Type::FLOAT) || float_type) {
    if (type != 0 && type != 'n' && !float_type) fail_type(spec, value);
    if (type == 'n') spec.number.type = 'g';
    return place_number(heap, format_float(value.as_double(), spec.number), spec, 3);
  }
  if (spec.number.precision.has_value()) {
    throw RenderError("Precision not allowed in integer format specifier");
  }
  if (type == 'c') {
    int64_t code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      throw RenderError("%c arg not in range(0x110000)");
    }
    std::string text;
    utf8_append(text, static_cast<char32_t>(code));
    return padded(heap, text, spec, '<');
  }
  if (type != 0 && std::string_view("dnxXob").find(type) == std::string_view::npos) {
    fail_type(spec, value);
  }
  bool decimal = type == 0 || type == 'd' || type == 'n';
  if (spec.number.grouping == ',' && !decimal)
    throw RenderError("Cannot specify ',' with that type.");
  return place_number(heap, format_int(value.as_int(), spec.number), spec, decimal ? 3 : 4);
}

}  // namespace

std::string format_value(Heap& heap, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_str(heap, value);
  FormatSpec parsed = SpecParser(spec).parse();
  if (value.is_string()) return format_text(heap, value, parsed);
  if (value.is_number()) return format_number(heap, value, parsed);
  throw RenderError("unsupported format string passed to " + type_name(value) + ".__format__");
}

}  // namespace pinfer::jinja
