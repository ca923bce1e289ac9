// What finds the matches of a tokenizer's pattern: a compiled program, or Oniguruma for the rare
// pattern that programs do not cover.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "core/status.h"
#include "core/utf8.h"
#include "tokenizer/oniguruma.h"
#include "tokenizer/pattern.h"
#include "tokenizer/text_step.h"

namespace pinfer {

// Immutable and thread-safe.
class Splitter {
 public:
  // {"program": {...}} or {"regex": text}.
  static Result<Splitter> parse(const nlohmann::json& fields, const TextStepContext& context);

  // Calls visit(PatternMatch) for all matches from left to right. An empty match directly after
  // the match before it does not count, as in the reference.
  template <typename Visit>
  Status for_each_match(std::string_view text, Visit visit) const {
    size_t from = 0;
    size_t last_end = static_cast<size_t>(-1);
    PatternMatch match;
    while (from <= text.size()) {
      bool found = false;
      PINFER_RETURN_IF_ERROR(find(text, from, &match, &found));
      if (!found) break;
      if (match.begin == match.end && match.end == last_end) {
        from += from < text.size() ? read_code_point(text, from).size : 1;
        continue;
      }
      from = last_end = match.end;
      visit(match);
    }
    return Status::ok_status();
  }

 private:
  Status find(std::string_view text, size_t from, PatternMatch* match, bool* found) const {
    if (oniguruma_ != nullptr) return oniguruma_->find(text, from, match, found);
    return program_->find(text, from, match, found);
  }

  std::shared_ptr<const Pattern> program_;
  std::shared_ptr<const OnigurumaPattern> oniguruma_;  // in its place
};

}  // namespace pinfer
