// Numbers as Python writes and reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pinfer::jinja {

// repr(float): the shortest digits that read back as the same number; "inf", "-inf", "nan".
std::string float_repr(double value);
// Python's round(): to `digits` decimal places, half to even on the exact value.
double round_float(double value, int digits);

enum class IntError {
  INVALID,   // not an integer of that base
  TOO_LARGE  // more than 64 bits
};
struct ParsedInt {
  std::optional<int64_t> value;
  IntError error = IntError::INVALID;
};
// Python's int(text, base): surrounding spaces, sign, single underscores, prefixes by base.
ParsedInt parse_int(std::string_view text, int base);
// Python's float(text).
std::optional<double> parse_float(std::string_view text);

// Digits of a non-negative integer in base 2, 8, 10 or 16 (lower case).
std::string digits_of(uint64_t value, int base);

}  // namespace pinfer::jinja
