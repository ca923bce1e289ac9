#include "tokenizer/byte_level.h"

#include "core/utf8.h"

namespace pinfer {

namespace {

// Alphabet code points lie below 324; -1: not of the alphabet.
constexpr size_t kInverseSize = 324;

constexpr std::array<int16_t, kInverseSize> make_inverse() {
  std::array<int16_t, kInverseSize> inverse{};
  for (auto& value : inverse) value = -1;
  for (size_t byte = 0; byte < 256; ++byte) {
    inverse[kByteAlphabet[byte]] = static_cast<int16_t>(byte);
  }
  return inverse;
}
constexpr std::array<int16_t, kInverseSize> kInverse = make_inverse();

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_code_point(kByteAlphabet[static_cast<unsigned char>(byte)], &text);
  }
  return text;
}

bool from_byte_alphabet(std::string_view text, std::string* bytes) {
  const size_t old_size = bytes->size();
  for (size_t position = 0; position < text.size();) {
    const CodePoint code_point = read_code_point(text, position);
    if (code_point.value >= kInverseSize || kInverse[code_point.value] < 0) {
      bytes->resize(old_size);
      return false;
    }
    bytes->push_back(static_cast<char>(kInverse[code_point.value]));
    position += code_point.size;
  }
  return true;
}

}  // namespace pinfer
