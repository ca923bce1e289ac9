#include "template/text/number_format.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "template/text/number_text.h"

namespace pinfer::jinja {

namespace {

std::string sign_of(bool negative, char sign) {
  if (negative) return "-";
  return sign == '-' ? "" : std::string(1, sign);
}

std::string to_upper_ascii(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string print_float(double value, char type, int64_t precision, bool alternate) {
  const char pattern[] = {'%', '.', '*', type, 0};
  const char alternate_pattern[] = {'%', '#', '.', '*', type, 0};
  const char* format = alternate ? alternate_pattern : pattern;
  int size = std::snprintf(nullptr, 0, format, static_cast<int>(precision), value);
  std::string text(static_cast<size_t>(size), '\0');
  std::snprintf(text.data(), text.size() + 1, format, static_cast<int>(precision), value);
  return text;
}

// The general format without a type letter keeps a digit after the point.
std::string with_point_zero(std::string text) {
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

FormattedNumber format_int(int64_t value, const NumberFormat& format) {
  bool negative = value < 0;
  uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  FormattedNumber result;
  result.prefix = sign_of(negative, format.sign);
  int base = 10;
  switch (format.type) {
    case 'x':
    case 'X':
      base = 16;
      break;
    case 'o':
      base = 8;
      break;
    case 'b':
      base = 2;
      break;
    default:
      break;
  }
  result.digits = digits_of(magnitude, base);
  if (format.type == 'X') result.digits = to_upper_ascii(result.digits);
  if (format.alternate && base != 10) result.prefix += std::string("0") + format.type;
  if (format.precision.has_value()) {
    size_t digits = static_cast<size_t>(std::max<int64_t>(*format.precision, 0));
    if (result.digits.size() < digits) result.digits.insert(0, digits - result.digits.size(), '0');
  }
  return result;
}

FormattedNumber format_float(double value, const NumberFormat& format) {
  FormattedNumber result;
  result.prefix = sign_of(std::signbit(value) && !std::isnan(value), format.sign);
  double magnitude = std::fabs(value);
  bool upper = format.type == 'E' || format.type == 'F' || format.type == 'G';
  if (!std::isfinite(value)) {
    result.digits = std::isnan(value) ? "nan" : "inf";
    if (upper) result.digits = to_upper_ascii(result.digits);
    if (format.type == '%') result.digits += '%';
    return result;
  }
  switch (format.type) {
    case 0:
      result.digits =
          !format.precision.has_value()
              ? float_repr(magnitude)
              : with_point_zero(print_float(magnitude, 'g', std::max<int64_t>(*format.precision, 1),
                                            format.alternate));
      break;
    case '%':
      result.digits =
          print_float(magnitude * 100, 'f', format.precision.value_or(6), format.alternate) + "%";
      break;
    case 'F':
      result.digits = print_float(magnitude, 'f', format.precision.value_or(6), format.alternate);
      break;
    default:
      result.digits =
          print_float(magnitude, format.type, format.precision.value_or(6), format.alternate);
  }
  return result;
}

std::string group_digits(const std::string& digits, char separator, int group_size,
                         size_t min_width) {
  size_t whole = 0;
  while (whole < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[whole]))) {
    if (group_size == 3 && !std::isdigit(static_cast<unsigned char>(digits[whole]))) break;
    ++whole;
  }
  std::string rest = digits.substr(whole);
  std::string reversed;
  size_t placed = 0;
  // Zeros of the padding are grouped too.
  auto put = [&](char c) {
    if (placed > 0 && placed % static_cast<size_t>(group_size) == 0) reversed += separator;
    reversed += c;
    ++placed;
  };
  for (size_t i = whole; i > 0; --i) put(digits[i - 1]);
  while (reversed.size() + rest.size() < min_width) put('0');
  std::reverse(reversed.begin(), reversed.end());
  return reversed + rest;
}

}  // namespace pinfer::jinja
