#include "template/text/number_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "template/text/python_text.h"
#include "template/text/unicode.h"
#include "template/text/utf8.h"

namespace pinfer::jinja {

namespace {

// The text with decimal digits of all scripts written in ASCII; nothing if another non-ASCII
// character is in it.
std::optional<std::string> ascii_digits(std::string_view text) {
  std::string result;
  for (size_t offset = 0; offset < text.size(); offset += utf8_char_length(text, offset)) {
    char32_t c = utf8_at(text, offset);
    if (c >= 0x80) {
      int digit = decimal_value(c);
      if (digit < 0) return std::nullopt;
      c = static_cast<char32_t>('0' + digit);
    }
    result += static_cast<char>(c);
  }
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes underscores, each of which must stand between two digits (`first_ok`: or at the start).
std::optional<std::string> without_underscores(std::string_view text, bool first_ok) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    bool before = i == 0 ? first_ok
                         : std::isxdigit(static_cast<unsigned char>(text[i - 1])) ||
                               std::isalnum(static_cast<unsigned char>(text[i - 1]));
    bool after = i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i + 1]));
    if (!before || !after) return std::nullopt;
  }
  return result;
}

// Base that a prefix like 0x stands for; 0 if there is none.
int prefix_base(std::string_view text) {
  if (text.size() < 2 || text[0] != '0') return 0;
  switch (text[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 0;
  }
}

// The digits of an integer literal without its prefix; sets `base` if it was 0.
std::optional<std::string> integer_digits(std::string_view text, int& base) {
  int prefix = prefix_base(text);
  bool has_prefix = prefix != 0 && (base == 0 || base == prefix);
  if (has_prefix) {
    base = prefix;
    text.remove_prefix(2);
  } else if (base == 0) {
    base = 10;
    bool only_zeros =
        std::all_of(text.begin(), text.end(), [](char c) { return c == '0' || c == '_'; });
    if (text.size() > 1 && text[0] == '0' && !only_zeros) return std::nullopt;
  }
  return without_underscores(text, has_prefix);
}

bool is_float_literal(std::string_view text) {
  size_t i = 0;
  size_t digits = 0;
  auto skip_digits = [&] {
    while (i < text.size() && is_digit(text[i])) ++i, ++digits;
  };
  skip_digits();
  if (i < text.size() && text[i] == '.') ++i;
  skip_digits();
  if (digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    digits = 0;
    skip_digits();
    if (digits == 0) return false;
  }
  return i == text.size();
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string sign;
  if (text[0] == '-') {
    sign = "-";
    text.remove_prefix(1);
  }
  size_t e = text.find('e');
  int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int num_digits = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string result = sign + digits.substr(0, 1);
    if (num_digits > 1) result += "." + digits.substr(1);
    std::string power = std::to_string(std::abs(exponent));
    if (power.size() < 2) power.insert(power.begin(), '0');
    return result + (exponent < 0 ? "e-" : "e+") + power;
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (num_digits <= exponent + 1) {
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - num_digits), '0') + ".0";
  }
  size_t point = static_cast<size_t>(exponent) + 1;
  return sign + digits.substr(0, point) + "." + digits.substr(point);
}

double round_float(double value, int digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return 0.0 * value;
  if (digits >= 0) {
    char buffer[800];
    std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
    return std::strtod(buffer, nullptr);
  }
  // Tens, hundreds, ...: the exact quotient decides, as in CPython's own fallback.
  double scale = std::pow(10.0, -digits);
  double scaled = value / scale;
  double rounded = std::nearbyint(scaled);
  return std::isfinite(rounded) ? rounded * scale : value;
}

ParsedInt parse_int(std::string_view text, int base) {
  std::optional<std::string> ascii = ascii_digits(strip(text));
  if (!ascii.has_value() || ascii->empty()) return {};
  std::string_view rest = *ascii;
  bool negative = rest[0] == '-';
  if (rest[0] == '-' || rest[0] == '+') rest.remove_prefix(1);
  std::optional<std::string> digits = integer_digits(rest, base);
  if (!digits.has_value() || digits->empty()) return {};
  std::string number = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (end != number.data() + number.size()) return {};
  if (error == std::errc::result_out_of_range) return {std::nullopt, IntError::TOO_LARGE};
  if (error != std::errc()) return {};
  return {value, IntError::INVALID};
}

std::optional<double> parse_float(std::string_view text) {
  std::optional<std::string> ascii = ascii_digits(strip(text));
  if (!ascii.has_value()) return std::nullopt;
  std::optional<std::string> plain = without_underscores(*ascii, false);
  if (!plain.has_value() || plain->empty()) return std::nullopt;
  std::string rest = *plain;
  double sign = rest[0] == '-' ? -1.0 : 1.0;
  if (rest[0] == '-' || rest[0] == '+') rest.erase(0, 1);
  std::string lower = to_lower(rest);
  if (lower == "inf" || lower == "infinity") return sign * HUGE_VAL;
  if (lower == "nan") return std::copysign(std::nan(""), sign);
  if (!is_float_literal(rest)) return std::nullopt;
  double value = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range) {
    // from_chars leaves the value alone: too large or too small by the sign of the exponent.
    size_t e = lower.find('e');
    bool tiny =
        (e != std::string::npos && lower[e + 1] == '-') || lower[0] == '0' || lower[0] == '.';
    return tiny ? sign * 0.0 : sign * HUGE_VAL;
  }
  return sign * value;
}

std::string digits_of(uint64_t value, int base) {
  char buffer[72];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, base).ptr;
  return std::string(buffer, end);
}

}  // namespace pinfer::jinja
