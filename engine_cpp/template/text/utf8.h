// UTF-8 by code points. Functions without a check REQUIRE valid UTF-8 and offsets on borders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pinfer::jinja {

// Offset of the first byte that is not valid UTF-8 (surrogates and overlong forms count as
// invalid).
std::optional<size_t> utf8_error(std::string_view text);

int64_t utf8_length(std::string_view text);
// Bytes of the character at `offset`; never beyond the end of the text.
size_t utf8_char_length(std::string_view text, size_t offset);
char32_t utf8_at(std::string_view text, size_t offset);
// Offset of the character before `offset`. REQUIRES offset > 0.
size_t utf8_previous(std::string_view text, size_t offset);
// Byte offset of character number `index`; the end if there are fewer.
size_t utf8_offset(std::string_view text, int64_t index);
void utf8_append(std::string& out, char32_t code_point);

std::u32string to_code_points(std::string_view text);
std::string from_code_points(std::u32string_view code_points);

}  // namespace pinfer::jinja
