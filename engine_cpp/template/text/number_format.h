// Numbers by Python's formatting rules: the parts that `%` and str.format() share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pinfer::jinja {

struct NumberFormat {
  char type = 0;                     // one of d x X o b e E f F g G %, or 0: the type's own
  char sign = '-';                   // '-', '+' or ' '
  bool alternate = false;            // #
  std::optional<int64_t> precision;  // REQUIRES <= kMaxPrecision
  char grouping = 0;                 // ',' or '_'
};
inline constexpr int64_t kMaxPrecision = 10000;

// A formatted number, split where padding with zeros goes in.
struct FormattedNumber {
  std::string prefix;  // sign and 0x
  std::string digits;
};

FormattedNumber format_int(int64_t value, const NumberFormat& format);
FormattedNumber format_float(double value, const NumberFormat& format);
// Puts separators into the digits before the point; `min_width` counts what zero padding asks for.
std::string group_digits(const std::string& digits, char separator, int group_size,
                         size_t min_width);

}  // namespace pinfer::jinja
