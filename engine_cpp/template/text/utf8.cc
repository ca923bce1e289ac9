#include "template/text/utf8.h"

#include <algorithm>

namespace pinfer::jinja {

namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of a valid character at `offset`, 0 if it is not valid.
size_t valid_length(std::string_view text, size_t offset) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || offset + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(i))) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogates
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

}  // namespace

std::optional<size_t> utf8_error(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    size_t length = valid_length(text, offset);
    if (length == 0) return offset;
    offset += length;
  }
  return std::nullopt;
}

int64_t utf8_length(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return !is_continuation(static_cast<unsigned char>(c)); });
}

size_t utf8_char_length(std::string_view text, size_t offset) {
  unsigned char lead = static_cast<unsigned char>(text[offset]);
  size_t length = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  return std::min(length, text.size() - offset);
}

char32_t utf8_at(std::string_view text, size_t offset) {
  size_t length = utf8_char_length(text, offset);
  unsigned char lead = static_cast<unsigned char>(text[offset]);
  char32_t code_point = length == 1 ? lead : lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[offset + i]) & 0x3F);
  }
  return code_point;
}

size_t utf8_previous(std::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && is_continuation(static_cast<unsigned char>(text[offset])));
  return offset;
}

size_t utf8_offset(std::string_view text, int64_t index) {
  size_t offset = 0;
  while (index > 0 && offset < text.size()) {
    offset += utf8_char_length(text, offset);
    --index;
  }
  return offset;
}

void utf8_append(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::u32string to_code_points(std::string_view text) {
  std::u32string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size(); offset += utf8_char_length(text, offset)) {
    result += utf8_at(text, offset);
  }
  return result;
}

std::string from_code_points(std::u32string_view code_points) {
  std::string result;
  result.reserve(code_points.size());
  for (char32_t c : code_points) utf8_append(result, c);
  return result;
}

}  // namespace pinfer::jinja
