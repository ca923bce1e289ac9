// Splitting patterns: programs that the exporter compiled from regular expressions
// (export/tokenizer_patterns.py), run here by a backtracking matcher over character classes.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/char_classes.h"

namespace pinfer {

// Kinds of nodes; the numbers are those of export/tokenizer_patterns.py.
enum class PatternNodeKind : uint8_t {
  END = 0,
  CLASS = 1,
  ALTERNATIVES = 2,
  LOOKAHEAD = 3,
  ATOMIC = 4,
  BEGIN_LINE = 5,
  END_LINE = 6,
  BEGIN_TEXT = 7,
  END_TEXT = 8,
  WORD_BOUNDARY = 9,
  CLASS_SEQUENCE = 10,
  LITERAL = 11,
};
inline constexpr int kNumPatternNodeKinds = 12;

enum class LoopMode : uint8_t { GREEDY = 0, LAZY = 1, POSSESSIVE = 2 };

// A piece of text found by a pattern.
struct PatternMatch {
  size_t begin = 0;
  size_t end = 0;
};

// One compiled pattern. Immutable and thread-safe; borrows the character classes, which must
// outlive it. Nodes refer only to nodes before them, so matching ends; it takes time linear in the
// text for patterns whose loops do not overlap.
class Pattern {
 public:
  // INVALID_ARGUMENT saying which node is wrong.
  static Result<Pattern> parse(const nlohmann::json& program, const CharClasses& classes);

  // The first match that begins at or after `from`; *found is false if there is none.
  // RESOURCE_EXHAUSTED if a pattern that backtracks without end uses up its steps.
  Status find(std::string_view text, size_t from, PatternMatch* match, bool* found) const;

 private:
  static constexpr size_t kNoMatch = static_cast<size_t>(-1);

  struct Node {
    PatternNodeKind kind = PatternNodeKind::END;
    LoopMode mode = LoopMode::GREEDY;
    bool negate = false;
    uint32_t next = 0;
    uint32_t inner = 0;  // LOOKAHEAD, ATOMIC: start of the sub-program
    uint32_t min = 1;
    uint32_t max = 1;
    uint64_t mask = 0;               // CLASS, WORD_BOUNDARY: the class's bit
    std::vector<uint64_t> masks;     // CLASS_SEQUENCE
    std::vector<uint32_t> children;  // ALTERNATIVES
    std::string text;                // LITERAL
    // ALTERNATIVES: the children that can match a text that begins with this ASCII character.
    std::vector<std::vector<uint32_t>> by_ascii;
    std::vector<uint32_t> by_other;  // the same for other characters and the end of the text
  };

  // The characters that a match from a node can begin with.
  struct FirstSet {
    uint64_t mask = 0;              // any of these classes
    std::array<bool, 128> ascii{};  // single characters
    bool any = false;               // also others, or nothing at all
  };

  Status parse_node(const nlohmann::json& fields, uint32_t index);
  FirstSet first_set(uint32_t index, const std::vector<FirstSet>& known) const;
  void make_dispatch(Node* node, const std::vector<FirstSet>& known) const;

  // One search: the text, and how many more nodes may be tried.
  struct Search {
    std::string_view text;
    uint64_t steps_left;
  };
  size_t match(uint32_t start, Search* search, size_t position) const;
  size_t match_class(const Node& node, Search* search, size_t position) const;
  size_t match_class_sequence(const Node& node, Search* search, size_t position) const;
  bool holds(const Node& node, std::string_view text, size_t position) const;
  // The end of at most `limit` characters of the class from `position` on; sets their number.
  size_t consume(uint64_t mask, std::string_view text, size_t position, uint32_t limit,
                 uint32_t* count) const;
  uint64_t mask_at(std::string_view text, size_t position) const;

  std::vector<Node> nodes_;
  uint32_t start_ = 0;
  size_t num_children_ = 0;  // of all ALTERNATIVES
  const CharClasses* classes_ = nullptr;
  const uint64_t* ascii_masks_ = nullptr;
};

}  // namespace pinfer
