#include "template/builtins/percent_format.h"

#include <cmath>
#include <cstdio>

#include "template/builtins/operators.h"
#include "template/text/number_format.h"
#include "template/text/number_text.h"
#include "template/text/python_text.h"
#include "template/text/utf8.h"
#include "template/value/dict.h"
#include "template/value/show.h"

namespace pinfer::jinja {

namespace {

constexpr int64_t kMaxWidth = 1'000'000;

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Value& format, const Value& values)
      : heap_(heap), text_(format.text()), is_markup_(format.string().is_markup), values_(values) {}

  Value run() {
    while (position_ < text_.size()) {
      size_t percent = std::min(text_.find('%', position_), text_.size());
      out_.append(text_, position_, percent - position_);
      position_ = percent;
      if (position_ < text_.size()) format_one();
    }
    bool is_mapping = values_.is_dict() || values_.is(Type::LIST) || values_.is_undefined();
    if (used_ < num_values() && !is_mapping) {
      throw RenderError("not all arguments converted during string formatting");
    }
    return make_string(heap_, std::move(out_), is_markup_);
  }

 private:
  struct Spec {
    bool left = false, zero = false;
    int64_t width = 0;
    NumberFormat number;
  };

  size_t num_values() const { return values_.is(Type::TUPLE) ? values_.items().size() : 1; }

  Value next_value() {
    if (used_ >= num_values() || mapped_) {
      throw RenderError("not enough arguments for format string");
    }
    return values_.is(Type::TUPLE) ? values_.items()[used_++] : (++used_, values_);
  }

  char peek() const {
    if (position_ >= text_.size()) throw RenderError("incomplete format");
    return text_[position_];
  }

  // `%(name)s`: the value under that name.
  std::optional<Value> named_value() {
    if (peek() != '(') return std::nullopt;
    if (!values_.is_dict()) throw RenderError("format requires a mapping");
    size_t begin = ++position_;
    int open = 1;
    for (; open > 0; ++position_) {
      if (position_ >= text_.size()) throw RenderError("incomplete format key");
      if (text_[position_] == '(') ++open;
      if (text_[position_] == ')') --open;
    }
    std::string key = text_.substr(begin, position_ - 1 - begin);
    const Value* found = values_.dict().find(key);
    if (found == nullptr) throw RenderError("the format names the missing key '" + key + "'");
    mapped_ = true;
    return *found;
  }

  int64_t read_number() {
    if (peek() == '*') {
      ++position_;
      Value value = next_value();
      if (!value.is_integral()) throw RenderError("* wants int");
      return check_width(value.as_int());
    }
    int64_t number = 0;
    while (peek() >= '0' && peek() <= '9') {
      number = check_width(number * 10 + (text_[position_++] - '0'));
    }
    return number;
  }

  static int64_t check_width(int64_t width) {
    if (width > kMaxWidth || width < -kMaxWidth) throw RenderError("width or precision too big");
    return width;
  }

  Spec read_spec() {
    Spec spec;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          spec.left = true;
          break;
        case '+':
          spec.number.sign = '+';
          break;
        case ' ':
          if (spec.number.sign != '+') spec.number.sign = ' ';
          break;
        case '#':
          spec.number.alternate = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          more = false;
      }
      if (more) ++position_;
    }
    spec.width = read_number();
    if (spec.width < 0) {
      spec.left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++position_;
      spec.number.precision = std::max<int64_t>(read_number(), 0);
    }
    if (peek() == 'h' || peek() == 'l' || peek() == 'L') ++position_;
    return spec;
  }

  void format_one() {
    size_t start = position_++;
    if (peek() == '%') {
      ++position_;
      out_ += '%';
      return;
    }
    std::optional<Value> named = named_value();
    Spec spec = read_spec();
    char type = peek();
    ++position_;
    if (type == '%') {
      out_ += '%';
      return;
    }
    if (std::string_view("diuxXoeEfFgGcrsa").find(type) == std::string_view::npos) {
      throw RenderError("unsupported format character '" + std::string(1, type) + "' at index " +
                        std::to_string(start));
    }
    Value value = named.has_value() ? *named : next_value();
    if (type == 's' || type == 'r' || type == 'a') {
      put_text(spec, text_of(value, type));
    } else if (type == 'c') {
      put_text(spec, character(value));
    } else {
      put_number(spec, number_of(value, type, spec.number));
    }
  }

  std::string text_of(const Value& value, char type) {
    if (type == 's') return is_markup_ ? escaped(heap_, value) : to_str(heap_, value);
    std::string out;
    append_repr(heap_, out, value);
    if (type == 'a') out = ascii_only(out);
    return is_markup_ ? escape_html(out) : out;
  }

  static std::string ascii_only(const std::string& text) {
    std::string out;
    for (char32_t c : to_code_points(text)) {
      char buffer[16];
      const char* pattern = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof(buffer), pattern, static_cast<unsigned>(c));
      out += c < 0x80 ? std::string(1, static_cast<char>(c)) : buffer;
    }
    return out;
  }

  static std::string character(const Value& value) {
    if (value.is_string() && value.string().num_chars == 1) return value.text();
    if (!value.is_integral()) throw RenderError("%c requires an int or a unicode character");
    int64_t code = value.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      throw RenderError("%c requires a character of Unicode");
    }
    std::string out;
    utf8_append(out, static_cast<char32_t>(code));
    return out;
  }

  static FormattedNumber number_of(const Value& value, char type, NumberFormat format) {
    check_defined(value);
    format.precision = format.precision.has_value()
                           ? std::optional(std::min(*format.precision, kMaxPrecision))
                           : std::nullopt;
    bool decimal = type == 'd' || type == 'i' || type == 'u';
    format.type = decimal ? 'd' : type;
    if (decimal || type == 'x' || type == 'X' || type == 'o') {
      if (value.is_integral()) return format_int(value.as_int(), format);
      if (!decimal || !value.is(Type::FLOAT)) {
        throw RenderError("%" + std::string(1, type) +
                          " format: " + (decimal ? "a real number" : "an integer") +
                          " is required, not " + type_name(value));
      }
      double number = std::trunc(value.as_double());
      if (!std::isfinite(number)) throw RenderError("cannot convert the float to an integer");
      if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0)) {
        throw RenderError("the integer needs more than 64 bits");
      }
      return format_int(static_cast<int64_t>(number), format);
    }
    if (!value.is_number()) throw RenderError("must be real number, not " + type_name(value));
    return format_float(value.as_double(), format);
  }

  void put_text(const Spec& spec, std::string text) {
    if (spec.number.precision.has_value()) text.resize(utf8_offset(text, *spec.number.precision));
    pad(spec, std::move(text));
  }

  void put_number(const Spec& spec, FormattedNumber number) {
    size_t length = number.prefix.size() + number.digits.size();
    if (spec.zero && !spec.left && length < static_cast<size_t>(spec.width)) {
      number.digits.insert(0, static_cast<size_t>(spec.width) - length, '0');
    }
    pad(spec, number.prefix + number.digits);
  }

  void pad(const Spec& spec, std::string text) {
    int64_t missing = spec.width - utf8_length(text);
    std::string spaces(static_cast<size_t>(std::max<int64_t>(missing, 0)), ' ');
    heap_.check_text_size(out_.size() + text.size() + spaces.size());
    heap_.spend_bytes(text.size() + spaces.size());
    out_ += spec.left ? text + spaces : spaces + text;
  }

  Heap& heap_;
  const std::string& text_;
  const bool is_markup_;
  const Value& values_;
  std::string out_;
  size_t position_ = 0;
  size_t used_ = 0;
  bool mapped_ = false;
};

}  // namespace

Value percent_format(Heap& heap, const Value& format, const Value& values) {
  return PercentFormatter(heap, format, values).run();
}

}  // namespace pinfer::jinja
