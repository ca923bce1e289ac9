#include "tokenizer/added_tokens.h"

#include "core/utf8.h"

namespace pinfer {

bool AddedTokens::is_member(std::string_view text, size_t position, uint64_t mask) const {
  return (classes_->mask(read_code_point(text, position).value) & mask) != 0;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
  const bool word_before =
      begin > 0 && is_member(text, previous_code_point(text, begin), word_mask_);
  const bool word_after = end < text.size() && is_member(text, end, word_mask_);
  return !word_before && !word_after;
}

void AddedTokens::split(const TextPiece& piece, std::vector<AddedTokenPart>* parts) const {
  const std::string_view text = piece.text;
  size_t covered = 0;
  const auto add_text = [&](size_t begin, size_t end) {
    if (begin < end) parts->push_back({-1, piece.part(begin, end)});
  };
  for (size_t position = 0; !trie_.empty() && position < text.size();) {
    size_t match_end = 0;
    int32_t id = -1;
    trie_.for_each_match(text, position, [&](size_t end, int32_t value) {
      match_end = end;
      id = value;
    });
    if (id < 0 || !vocabulary_->contains(id)) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position = match_end;
    const uint8_t flags = vocabulary_->flags(id);
    if ((flags & TOKEN_SINGLE_WORD) && !stands_alone(text, begin, end)) continue;
    if (flags & TOKEN_LSTRIP) {
      while (begin > 0) {
        const size_t before = previous_code_point(text, begin);
        if (!is_member(text, before, space_mask_)) break;
        begin = before;
      }
      begin = std::max(begin, covered);
    }
    if (flags & TOKEN_RSTRIP) {
      while (end < text.size() && is_member(text, end, space_mask_)) {
        end += read_code_point(text, end).size;
      }
    }
    // After an rstrip the next match may begin inside the spaces taken: the reference keeps both,
    // unless lstrip leaves nothing of the second.
    add_text(covered, begin);
    if (begin < end) parts->push_back({id, piece.part(begin, end)});
    covered = end;
  }
  add_text(covered, text.size());
}

}  // namespace pinfer
