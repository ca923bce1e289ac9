// Stop strings in streamed text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfer {

// Finds stop strings in text that comes in pieces, whatever the borders between the pieces. Text is
// held back only while it could be the beginning of a stop string. The match that is complete
// first ends the text (of several that end with the same byte, the longest), so that the result
// does not depend on how the text was cut. Takes time linear in the text.
// Not thread-safe. Empty stop strings are ignored.
class StopStringMatcher {
 public:
  // With include_stop the stop string found stays in the text.
  explicit StopStringMatcher(std::vector<std::string> stop_strings, bool include_stop = false);

  // Takes new text and returns what may be given out now. After a match: nothing more. With
  // may_match false, a stop string that ends in this text is ordinary text.
  std::string add(std::string_view text, bool may_match = true);
  // The text still held back, when no more will come.
  std::string finish();

  // The index of the stop string found, if one was.
  std::optional<size_t> matched() const { return matched_; }

 private:
  struct Candidate {
    std::string text;
    std::vector<uint32_t> fallback;  // longest border of each prefix, as in Knuth-Morris-Pratt
    uint32_t matched = 0;            // how much of it the text now ends with
  };

  std::vector<Candidate> candidates_;
  bool include_stop_;
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace pinfer
