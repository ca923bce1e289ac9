// Added tokens: texts that become one token wherever they stand, before the model sees the rest.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/text_piece.h"
#include "tokenizer/vocabulary.h"

namespace pinfer {

// A part of the input: one added token, or text between two.
struct AddedTokenPart {
  int32_t id = -1;  // -1: text
  TextPiece piece;
};

// One set of added tokens. Immutable and thread-safe; borrows what it is made from.
class AddedTokens {
 public:
  // `word_mask` and `space_mask` are the classes that single_word, lstrip and rstrip look at.
  AddedTokens(ByteTrie trie, const Vocabulary& vocabulary, const CharClasses& classes,
              uint64_t word_mask, uint64_t space_mask)
      : trie_(trie),
        vocabulary_(&vocabulary),
        classes_(&classes),
        word_mask_(word_mask),
        space_mask_(space_mask) {}

  // Appends the parts of `piece`: of the tokens that begin leftmost, the longest is taken.
  void split(const TextPiece& piece, std::vector<AddedTokenPart>* parts) const;

 private:
  bool stands_alone(std::string_view text, size_t begin, size_t end) const;
  bool is_member(std::string_view text, size_t position, uint64_t mask) const;

  ByteTrie trie_;
  const Vocabulary* vocabulary_;
  const CharClasses* classes_;
  uint64_t word_mask_;
  uint64_t space_mask_;
};

}  // namespace pinfer
