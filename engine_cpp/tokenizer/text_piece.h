// Pieces of text on their way from the input to the model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace pinfer {

// Owns the texts that normalizers and pre-tokenizers make during one call; views stay valid.
class TextArena {
 public:
  std::string_view keep(std::string text) { return texts_.emplace_back(std::move(text)); }

 private:
  std::deque<std::string> texts_;
};

// A piece of text. `at_start` is the number of its first bytes that stand for the first character
// of the whole input: some steps treat the beginning of the input in their own way. What is written
// before a piece that begins the input stands for that beginning, too, even where the first
// character itself is gone.
struct TextPiece {
  std::string_view text;
  size_t at_start = 0;
  bool begins_input = false;

  TextPiece part(size_t begin, size_t end) const {
    const size_t start = at_start > begin ? std::min(at_start, end) - begin : 0;
    return {text.substr(begin, end - begin), start, begins_input && begin == 0};
  }
};

}  // namespace pinfer
