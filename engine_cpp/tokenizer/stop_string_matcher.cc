#include "tokenizer/stop_string_matcher.h"

#include <algorithm>
#include <utility>

namespace pinfer {

namespace {

std::vector<uint32_t> longest_borders(const std::string& text) {
  std::vector<uint32_t> borders(text.size(), 0);
  uint32_t length = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    if (text[i] == text[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

}  // namespace

StopStringMatcher::StopStringMatcher(std::vector<std::string> stop_strings, bool include_stop)
    : include_stop_(include_stop) {
  for (std::string& text : stop_strings) {
    std::vector<uint32_t> borders = longest_borders(text);
    candidates_.push_back({std::move(text), std::move(borders), 0});
  }
}

std::string StopStringMatcher::add(std::string_view text, bool may_match) {
  if (matched_) return {};
  for (const char byte : text) {
    held_.push_back(byte);
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& candidate = candidates_[i];
      if (candidate.text.empty()) continue;
      uint32_t& length = candidate.matched;
      while (length > 0 && candidate.text[length] != byte) length = candidate.fallback[length - 1];
      if (candidate.text[length] == byte) ++length;
      if (length < candidate.text.size()) continue;
      length = candidate.fallback[length - 1];
      if (!may_match) continue;
      if (!matched_ || candidate.text.size() > candidates_[*matched_].text.size()) matched_ = i;
    }
    if (matched_) {
      if (!include_stop_) held_.resize(held_.size() - candidates_[*matched_].text.size());
      return std::exchange(held_, {});
    }
  }
  size_t keep = 0;
  for (const Candidate& candidate : candidates_) keep = std::max<size_t>(keep, candidate.matched);
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopStringMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace pinfer
