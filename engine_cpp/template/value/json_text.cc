#include "template/value/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "template/text/number_text.h"
#include "template/text/utf8.h"
#include "template/value/compare.h"
#include "template/value/dict.h"

namespace pinfer::jinja {

namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  // Recursion is bounded by the depth of values.
  void write(const Value& value, int level) {
    heap_.spend(1);
    heap_.check_text_size(out_.size());
    switch (value.type()) {
      case Type::STRING:
        write_string(value.text());
        break;
      case Type::LIST:
      case Type::TUPLE:
        write_list(value.items(), level);
        break;
      case Type::DICT:
        write_dict(value.dict(), level);
        break;
      default:
        out_ += scalar(value);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    switch (value.type()) {
      case Type::NONE:
        return "null";
      case Type::BOOL:
        return value.as_bool() ? "true" : "false";
      case Type::INT:
        return std::to_string(value.as_int());
      case Type::FLOAT:
        if (std::isnan(value.as_double())) return "NaN";
        if (std::isinf(value.as_double())) return value.as_double() < 0 ? "-Infinity" : "Infinity";
        return float_repr(value.as_double());
      default:
        throw RenderError("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  void new_line(int level) {
    if (!style_.indent.has_value()) return;
    out_ += '\n';
    size_t bytes = style_.indent->size() * static_cast<size_t>(level);
    heap_.check_text_size(out_.size() + bytes);
    heap_.spend_bytes(bytes);
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void write_list(const std::vector<Value>& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write(items[i], level + 1);
    }
    new_line(level);
    out_ += ']';
  }

  void write_dict(const DictObject& dict, int level) {
    if (dict.size() == 0) {
      out_ += "{}";
      return;
    }
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](auto* a, auto* b) { return less(heap_, a->first, b->first); });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      write_key(entries[i]->first);
      out_ += style_.key_separator;
      write(entries[i]->second, level + 1);
    }
    new_line(level);
    out_ += '}';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is_none()) {
      throw RenderError("keys must be str, int, float, bool or None, not " + type_name(key));
    }
    write_string(scalar(key));
  }

  void write_escape(char32_t unit) {
    char buffer[16];
    std::snprintf(buffer, sizeof(buffer), "\\u%04x", static_cast<unsigned>(unit));
    out_ += buffer;
  }

  void write_string(const std::string& text) {
    heap_.spend_bytes(text.size());
    out_ += '"';
    for (size_t offset = 0; offset < text.size();) {
      size_t length = utf8_char_length(text, offset);
      char32_t c = utf8_at(text, offset);
      static constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      size_t escape = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
      if (escape != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[escape];
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000)) {
        write_escape(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        write_escape(0xD800 + ((c - 0x10000) >> 10));
        write_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_.append(text, offset, length);
      }
      offset += length;
    }
    out_ += '"';
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace pinfer::jinja
