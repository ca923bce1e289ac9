// UTF-8: checking, reading and writing code points. Reading is safe on any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pinfer {

inline constexpr uint32_t kReplacementCodePoint = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

struct CodePoint {
  uint32_t value = 0;
  uint32_t size = 1;  // bytes taken, at least 1
};

// What a byte sequence at the start of some bytes is.
struct Utf8Prefix {
  enum class Kind {
    VALID,       // `size` bytes are one character
    INVALID,     // `size` bytes can never be part of one: one replacement mark stands for them
    INCOMPLETE,  // the bytes end inside what may become a character; `size` is all of them
  };
  Kind kind = Kind::VALID;
  size_t size = 0;
};

// REQUIRES !bytes.empty(). `size` follows the rule of Unicode 3.9 (maximal subparts).
Utf8Prefix classify_utf8(std::string_view bytes);

// The position of the first byte that is not part of a valid character; npos if there is none.
size_t find_invalid_utf8(std::string_view text);

// Appends `bytes` to `out`, invalid parts and an unfinished end as U+FFFD.
void append_lossy_utf8(std::string_view bytes, std::string* out);

// `text` with invalid parts as U+FFFD. For messages, which may quote what a damaged file holds.
std::string valid_utf8(std::string_view text);

void append_code_point(uint32_t code_point, std::string* out);

// The character at `position`. Malformed bytes read as one U+FFFD per byte.
// REQUIRES position < text.size().
inline CodePoint read_code_point(std::string_view text, size_t position) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + position;
  const size_t left = text.size() - position;
  const uint32_t first = bytes[0];
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) {
    if (first < 0xC2 || left < 2) return {kReplacementCodePoint, 1};
    return {((first & 0x1F) << 6) | (bytes[1] & 0x3Fu), 2};
  }
  if (first < 0xF0) {
    if (left < 3) return {kReplacementCodePoint, 1};
    return {((first & 0x0F) << 12) | ((bytes[1] & 0x3Fu) << 6) | (bytes[2] & 0x3Fu), 3};
  }
  if (first > 0xF4 || left < 4) return {kReplacementCodePoint, 1};
  const uint32_t value = ((first & 0x07) << 18) | ((bytes[1] & 0x3Fu) << 12) |
                         ((bytes[2] & 0x3Fu) << 6) | (bytes[3] & 0x3Fu);
  if (value > 0x10FFFF) return {kReplacementCodePoint, 1};
  return {value, 4};
}

// The start of the character that ends at `position`. REQUIRES position <= text.size().
inline size_t previous_code_point(std::string_view text, size_t position) {
  if (position == 0) return 0;  // only after malformed bytes
  size_t start = position - 1;
  while (start > 0 && position - start < 4 &&
         (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) {
    --start;
  }
  return start;
}

}  // namespace pinfer
