#include "template/text/strftime.h"

#include <clocale>
#include <cstdio>
#include <ctime>
#include <vector>

namespace pinfer::jinja {

namespace {

// The "C" locale, whatever the program around us has chosen. Lives as long as the process.
locale_t english_locale() {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

// Replaces what datetime handles itself: microseconds, and the zone that local time lacks.
std::string expand_datetime_codes(const std::string& pattern, int64_t microseconds) {
  std::string result;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      result += pattern[i];
      continue;
    }
    char code = pattern[++i];
    if (code == 'f') {
      char buffer[16];
      std::snprintf(buffer, sizeof(buffer), "%06d", static_cast<int>(microseconds));
      result += buffer;
    } else if (code != 'z' && code != 'Z') {
      result += '%';
      result += code;
    }
  }
  return result;
}

}  // namespace

std::string format_local_time(std::chrono::system_clock::time_point time,
                              const std::string& pattern) {
  using std::chrono::microseconds;
  int64_t since_epoch = std::chrono::floor<microseconds>(time.time_since_epoch()).count();
  int64_t fraction = ((since_epoch % 1'000'000) + 1'000'000) % 1'000'000;
  std::time_t seconds = static_cast<std::time_t>((since_epoch - fraction) / 1'000'000);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::string format = expand_datetime_codes(pattern, fraction);
  if (format.empty() || english_locale() == nullptr) return "";
  // strftime does not tell "too small" from "empty"; CPython gives up at the same size.
  size_t limit = 256 * format.size();
  for (size_t size = 1024;; size *= 2) {
    std::vector<char> buffer(size);
    size_t length = ::strftime_l(buffer.data(), size, format.c_str(), &local, english_locale());
    if (length > 0 || size >= limit) return std::string(buffer.data(), length);
  }
}

}  // namespace pinfer::jinja
