// Oniguruma, loaded when a tokenizer's pattern needs it: the regular expressions that compiled
// programs (pattern.h) do not cover, such as look-behind and back-references.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/pattern.h"

namespace pinfer {

// One compiled regular expression. Immutable and thread-safe; keeps the library loaded.
class OnigurumaPattern {
 public:
  // Looks for the library in `directories`, in order, then in the system's places.
  // FAILED_PRECONDITION if it is in none, INVALID_ARGUMENT if it refuses the pattern.
  static Result<std::unique_ptr<OnigurumaPattern>> compile(
      const std::string& pattern, const std::vector<std::string>& directories);
  ~OnigurumaPattern();
  OnigurumaPattern(const OnigurumaPattern&) = delete;
  OnigurumaPattern& operator=(const OnigurumaPattern&) = delete;

  // The first match that begins at or after `from`; *found is false if there is none.
  // RESOURCE_EXHAUSTED if the search takes too many steps.
  Status find(std::string_view text, size_t from, PatternMatch* match, bool* found) const;

 private:
  struct Library;
  OnigurumaPattern(std::shared_ptr<const Library> library, void* regex)
      : library_(std::move(library)), regex_(regex) {}

  std::shared_ptr<const Library> library_;
  void* regex_;  // owned
};

}  // namespace pinfer
