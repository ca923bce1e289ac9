#include "template/text/python_text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <unordered_set>

#include "template/text/unicode.h"
#include "template/text/utf8.h"

namespace pinfer::jinja {

namespace {

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
  return is_in_class(c, CharClass::SPACE);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

template <typename Predicate>
std::string_view strip_if(std::string_view text, Side side, Predicate stripped) {
  size_t begin = 0, end = text.size();
  if (side != Side::RIGHT) {
    while (begin < end && stripped(utf8_at(text, begin))) begin += utf8_char_length(text, begin);
  }
  if (side != Side::LEFT) {
    while (end > begin) {
      size_t previous = utf8_previous(text, end);
      if (!stripped(utf8_at(text, previous))) break;
      end = previous;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // memmem, because std::string_view::find takes quadratic time on text made for it.
  const void* found = ::memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view part) {
  if (part.size() <= 16 || part.size() > text.size()) return text.rfind(part);
  std::string reversed_text(text.rbegin(), text.rend());
  std::string reversed_part(part.rbegin(), part.rend());
  size_t found = find_text(reversed_text, reversed_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip_chars(std::string_view text, std::string_view chars, Side side) {
  std::unordered_set<char32_t> set;
  for (char32_t c : to_code_points(chars)) set.insert(c);
  return strip_if(text, side, [&](char32_t c) { return set.contains(c); });
}

std::vector<std::string_view> split_whitespace(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::LEFT);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
      parts.push_back(text);  // the rest keeps its spaces at the end
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_space(utf8_at(text, end))) end += utf8_char_length(text, end);
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), Side::LEFT);
  }
  return parts;
}

std::vector<std::string_view> rsplit_whitespace(std::string_view text, int64_t max_splits) {
  std::vector<std::string_view> parts;
  text = strip(text, Side::RIGHT);
  while (!text.empty()) {
    if (max_splits >= 0 && static_cast<int64_t>(parts.size()) >= max_splits) {
      parts.push_back(text);  // the rest keeps its spaces at the start
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = utf8_previous(text, begin);
      if (is_space(utf8_at(text, previous))) break;
      begin = previous;
    }
    parts.push_back(text.substr(begin));
    text = strip(text.substr(0, begin), Side::RIGHT);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t position = find_text(text, separator);
    if (position == std::string_view::npos) break;
    parts.push_back(text.substr(0, position));
    text.remove_prefix(position + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     int64_t max_splits) {
  std::vector<std::string_view> parts;
  while (max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits) {
    size_t position = rfind_text(text, separator);
    if (position == std::string_view::npos) break;
    parts.push_back(text.substr(position + separator.size()));
    text = text.substr(0, position);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size();) {
    char32_t c = utf8_at(text, offset);
    size_t after = offset + utf8_char_length(text, offset);
    if (is_line_end(c)) {
      if (c == '\r' && after < text.size() && text[after] == '\n') ++after;
      lines.push_back(text.substr(begin, (keep_ends ? after : offset) - begin));
      begin = after;
    }
    offset = after;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

int64_t count(std::string_view text, std::string_view part) {
  if (part.empty()) return utf8_length(text) + 1;
  int64_t found = 0;
  for (size_t position = find_text(text, part); position != std::string_view::npos;
       position = find_text(text, part, position + part.size())) {
    ++found;
  }
  return found;
}

size_t replaced_size(std::string_view text, std::string_view old_text, std::string_view new_text,
                     int64_t max_count) {
  int64_t found = count(text, old_text);
  if (max_count >= 0) found = std::min(found, max_count);
  return text.size() + static_cast<size_t>(found) * new_text.size() -
         static_cast<size_t>(found) * old_text.size();
}

std::string replace(std::string_view text, std::string_view old_text, std::string_view new_text,
                    int64_t max_count) {
  std::string result;
  result.reserve(replaced_size(text, old_text, new_text, max_count));
  size_t offset = 0;
  if (old_text.empty()) {  // the new text goes before every character and to the end
    while (max_count != 0) {
      result += new_text;
      --max_count;
      if (offset == text.size()) return result;
      size_t length = utf8_char_length(text, offset);
      result += text.substr(offset, length);
      offset += length;
    }
  }
  while (max_count != 0 && !old_text.empty()) {
    size_t position = find_text(text, old_text, offset);
    if (position == std::string_view::npos) break;
    result += text.substr(offset, position - offset);
    result += new_text;
    offset = position + old_text.size();
    --max_count;
  }
  result += text.substr(offset);
  return result;
}

std::string expand_tabs(std::string_view text, int64_t tab_size) {
  std::string result;
  int64_t column = 0;
  for (size_t offset = 0; offset < text.size();) {
    size_t length = utf8_char_length(text, offset);
    char c = text[offset];
    if (c == '\t') {
      int64_t spaces = tab_size > 0 ? tab_size - column % tab_size : 0;
      result.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
    } else {
      result += text.substr(offset, length);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
    offset += length;
  }
  return result;
}

std::string reverse(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t end = text.size(); end > 0;) {
    size_t begin = utf8_previous(text, end);
    result += text.substr(begin, end - begin);
    end = begin;
  }
  return result;
}

std::string slice(std::string_view text, int64_t start, int64_t length, int64_t step) {
  if (length <= 0) return "";
  if (step == 1) {
    size_t begin = utf8_offset(text, start);
    return std::string(text.substr(begin, utf8_offset(text.substr(begin), length)));
  }
  std::u32string code_points = to_code_points(text);
  std::string result;
  for (int64_t i = 0; i < length; ++i) {
    utf8_append(result, code_points[static_cast<size_t>(start + i * step)]);
  }
  return result;
}

void append_repr(std::string& out, std::string_view text) {
  bool has_single = text.find('\'') != std::string_view::npos;
  bool has_double = text.find('"') != std::string_view::npos;
  char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t offset = 0; offset < text.size();) {
    size_t length = utf8_char_length(text, offset);
    char32_t c = utf8_at(text, offset);
    char buffer[16];
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c < 0x20 || (c >= 0x7F && !is_in_class(c, CharClass::PRINTABLE))) {
      const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(buffer, sizeof(buffer), format, static_cast<unsigned>(c));
      out += buffer;
    } else {
      out += text.substr(offset, length);
    }
    offset += length;
  }
  out += quote;
}

std::string escape_html(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '\'':
        result += "&#39;";
        break;
      case '"':
        result += "&#34;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace pinfer::jinja
