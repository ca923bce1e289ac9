// Lists of float32 as JSON.
#pragma once

#include <charconv>
#include <nlohmann/json.hpp>
#include <span>

namespace pinfer {

// Each number as the double of its shortest decimal text: it is written with the digits that a
// float32 has, and reads back as the same float32.
inline nlohmann::ordered_json float_list(std::span<const float> values) {
  nlohmann::ordered_json::array_t list;
  list.reserve(values.size());
  for (const float value : values) {
    char text[32];
    double number = value;
    const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
    std::from_chars(text, end.ptr, number);
    list.emplace_back(number);
  }
  return list;
}

}  // namespace pinfer
