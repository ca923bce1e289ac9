// Integers in JSON that 64 bits do not hold. A parser would read them as floats, which are other
// numbers and print as such.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pinfer {

// The first integer of a valid JSON text that neither int64_t nor uint64_t holds.
inline std::optional<std::string> find_wide_integer(std::string_view json) {
  const auto is_number_char = [](char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  };
  for (size_t at = 0; at < json.size();) {
    if (json[at] == '"') {
      for (++at; at < json.size() && json[at] != '"'; ++at) at += json[at] == '\\' ? 1 : 0;
      ++at;
      continue;
    }
    if (json[at] != '-' && (json[at] < '0' || json[at] > '9')) {  // letters of true and null, too
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < json.size() && is_number_char(json[at])) ++at;
    const std::string_view number = json.substr(begin, at - begin);
    if (number.find_first_of(".eE") != std::string_view::npos) continue;
    const char* end = number.data() + number.size();
    int64_t as_signed = 0;
    uint64_t as_unsigned = 0;
    if (std::from_chars(number.data(), end, as_signed).ec != std::errc() &&
        std::from_chars(number.data(), end, as_unsigned).ec != std::errc()) {
      return std::string(number);
    }
  }
  return std::nullopt;
}

// What to say about it.
inline std::string wide_integer_message(const std::string& number) {
  const bool is_long = number.size() > 60;
  return "the integer " + (is_long ? number.substr(0, 60) + "..." : number) +
         " needs more than 64 bits";
}

}  // namespace pinfer
