#include "core/utf8.h"

#include <cstring>

namespace pinfer {

namespace {

// The number of bytes that a lead byte announces, and the range of the byte after it.
struct LeadByte {
  size_t size;
  unsigned char low, high;
};

LeadByte describe_lead(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Prefix classify_utf8(std::string_view bytes) {
  const LeadByte lead = describe_lead(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Utf8Prefix::Kind::INVALID, 1};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Prefix::Kind::INCOMPLETE, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Utf8Prefix::Kind::INVALID, i};
  }
  return {Utf8Prefix::Kind::VALID, lead.size};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    // Eight ASCII bytes at a time: most text is mostly ASCII.
    while (position + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + position, 8);
      if (word & 0x8080808080808080ULL) break;
      position += 8;
    }
    if (position == text.size()) break;
    const Utf8Prefix prefix = classify_utf8(text.substr(position));
    if (prefix.kind != Utf8Prefix::Kind::VALID) return position;
    position += prefix.size;
  }
  return std::string_view::npos;
}

void append_lossy_utf8(std::string_view bytes, std::string* out) {
  size_t valid_from = 0;
  size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Prefix prefix = classify_utf8(bytes.substr(position));
    if (prefix.kind != Utf8Prefix::Kind::VALID) {
      out->append(bytes.substr(valid_from, position - valid_from));
      out->append(kReplacementText);
      valid_from = position + prefix.size;
    }
    position += prefix.size;
  }
  out->append(bytes.substr(valid_from));
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  append_lossy_utf8(text, &valid);
  return valid;
}

void append_code_point(uint32_t code_point, std::string* out) {
  const auto byte = [out](uint32_t value) { out->push_back(static_cast<char>(value)); };
  if (code_point < 0x80) {
    byte(code_point);
  } else if (code_point < 0x800) {
    byte(0xC0 | (code_point >> 6));
    byte(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    byte(0xE0 | (code_point >> 12));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  } else {
    byte(0xF0 | (code_point >> 18));
    byte(0x80 | ((code_point >> 12) & 0x3F));
    byte(0x80 | ((code_point >> 6) & 0x3F));
    byte(0x80 | (code_point & 0x3F));
  }
}

}  // namespace pinfer
