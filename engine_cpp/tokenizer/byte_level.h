// The alphabet of byte-level tokenizers: each byte is written as one printable character.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pinfer {

// The code point that stands for each byte: printable Latin-1 for itself, the rest from 256 on.
constexpr std::array<uint16_t, 256> make_byte_alphabet() {
  std::array<uint16_t, 256> alphabet{};
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}
inline constexpr std::array<uint16_t, 256> kByteAlphabet = make_byte_alphabet();

// `bytes` in the alphabet, as UTF-8.
std::string to_byte_alphabet(std::string_view bytes);

// The bytes that `text` stands for; false if it holds a character outside the alphabet.
bool from_byte_alphabet(std::string_view text, std::string* bytes);

}  // namespace pinfer
