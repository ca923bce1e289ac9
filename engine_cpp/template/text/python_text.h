// Python's str operations on UTF-8 text. Indices and lengths count code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfer::jinja {

enum class Side { BOTH, LEFT, RIGHT };

// Byte offset of the first (last) occurrence, npos if there is none. Linear time for any input.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view part);

// Python's strip, lstrip, rstrip: whitespace, or the characters of `chars`.
std::string_view strip(std::string_view text, Side side = Side::BOTH);
std::string_view strip_chars(std::string_view text, std::string_view chars, Side side);

// split and rsplit; max_splits < 0 means all. Without a separator: at runs of whitespace.
std::vector<std::string_view> split_whitespace(std::string_view text, int64_t max_splits);
std::vector<std::string_view> rsplit_whitespace(std::string_view text, int64_t max_splits);
// REQUIRES a separator that is not empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t max_splits);
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     int64_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

// The size of `replace`'s result in bytes, and the result. max_count < 0 means all.
size_t replaced_size(std::string_view text, std::string_view old_text, std::string_view new_text,
                     int64_t max_count);
std::string replace(std::string_view text, std::string_view old_text, std::string_view new_text,
                    int64_t max_count);
// Occurrences that do not overlap.
int64_t count(std::string_view text, std::string_view part);

std::string expand_tabs(std::string_view text, int64_t tab_size);
std::string reverse(std::string_view text);
// Characters start, start+step, ... (`length` of them), as a slice of Python selects them.
std::string slice(std::string_view text, int64_t start, int64_t length, int64_t step);

// repr(text): quotes and escapes; appends.
void append_repr(std::string& out, std::string_view text);
// Escapes & < > ' " as markupsafe does.
std::string escape_html(std::string_view text);

}  // namespace pinfer::jinja
