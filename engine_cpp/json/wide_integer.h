// Integers in JSON that 64 bits do not hold. A parser would read them as floats, which are other
// numbers and print as such.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfer {

struct WideInteger {
  std::string path;  // of the member: max_tokens, prompt[0]; empty for the text itself
  std::string number;

  std::string message() const {
    const std::string shown = number.size() > 60 ? number.substr(0, 60) + "..." : number;
    return (path.empty() ? "" : path + ": ") + "the integer " + shown + " needs more than 64 bits";
  }
};

// Goes through a valid JSON text and knows where it is.
class WideIntegerSearch {
 public:
  explicit WideIntegerSearch(std::string_view json) : json_(json) {}

  // The first integer that neither int64_t nor uint64_t holds.
  std::optional<WideInteger> run() {
    while (at_ < json_.size()) {
      const char c = json_[at_];
      if (c == '"') {
        read_string();
      } else if (c == '-' || (c >= '0' && c <= '9')) {
        const std::string_view number = read_number();
        if (is_wide(number)) return WideInteger{path(), std::string(number)};
      } else {
        if (c == '{' || c == '[') levels_.push_back({c == '{', true, {}, 0});
        if ((c == '}' || c == ']') && !levels_.empty()) levels_.pop_back();
        if (c == ',' && !levels_.empty()) {
          levels_.back().expects_key = true;
          ++levels_.back().index;
        }
        ++at_;
      }
    }
    return std::nullopt;
  }

 private:
  struct Level {
    bool is_object;
    bool expects_key;
    std::string_view key;  // as it is spelt
    size_t index;
  };

  void read_string() {
    const size_t begin = ++at_;
    for (; at_ < json_.size() && json_[at_] != '"'; ++at_) at_ += json_[at_] == '\\' ? 1 : 0;
    if (!levels_.empty() && levels_.back().is_object && levels_.back().expects_key) {
      levels_.back().key = json_.substr(begin, at_ - begin);
      levels_.back().expects_key = false;
    }
    ++at_;
  }

  std::string_view read_number() {
    const size_t begin = at_;
    while (at_ < json_.size() &&
           std::string_view("0123456789-+.eE").find(json_[at_]) != std::string_view::npos) {
      ++at_;
    }
    return json_.substr(begin, at_ - begin);
  }

  static bool is_wide(std::string_view number) {
    if (number.find_first_of(".eE") != std::string_view::npos) return false;
    const char* end = number.data() + number.size();
    int64_t as_signed = 0;
    uint64_t as_unsigned = 0;
    return std::from_chars(number.data(), end, as_signed).ec != std::errc() &&
           std::from_chars(number.data(), end, as_unsigned).ec != std::errc();
  }

  std::string path() const {
    std::string result;
    for (const Level& level : levels_) {
      if (level.is_object) {
        result += (result.empty() ? "" : ".") + std::string(level.key);
      } else {
        result += "[" + std::to_string(level.index) + "]";
      }
    }
    return result;
  }

  std::string_view json_;
  size_t at_ = 0;
  std::vector<Level> levels_;
};

inline std::optional<WideInteger> find_wide_integer(std::string_view json) {
  return WideIntegerSearch(json).run();
}

}  // namespace pinfer
