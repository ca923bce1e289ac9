// WordPiece and WordLevel: words from a list.
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/byte_trie.h"
#include "tokenizer/token_model.h"

namespace pinfer {

namespace {

class WordLevelModel : public TokenModel {
 public:
  WordLevelModel(UnknownToken unknown, const Vocabulary& vocabulary)
      : unknown_(std::move(unknown)), vocabulary_(vocabulary) {}

  Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const override {
    const int32_t id = vocabulary_.find_in_model(piece);
    if (id >= 0) {
      ids->push_back(id);
      return Status::ok_status();
    }
    PINFER_RETURN_IF_ERROR(unknown_.check(piece));
    if (unknown_.id) ids->push_back(*unknown_.id);
    return Status::ok_status();
  }

 private:
  UnknownToken unknown_;
  const Vocabulary& vocabulary_;
};

// The longest token from the left, again and again; a word that cannot be covered is unknown.
class WordPieceModel : public TokenModel {
 public:
  WordPieceModel(ByteTrie trie, UnknownToken unknown, const std::string& prefix,
                 size_t max_characters, const Vocabulary& vocabulary)
      : trie_(trie),
        unknown_(std::move(unknown)),
        continuation_(trie.descend(prefix)),
        has_prefix_(!prefix.empty()),
        max_characters_(max_characters),
        vocabulary_(vocabulary) {}

  Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const override {
    const size_t old_size = ids->size();
    bool is_covered = count_characters(piece) <= max_characters_;
    for (size_t position = 0; is_covered && position < piece.size();) {
      size_t match_end = position;
      int32_t id = -1;
      const auto visit = [&](size_t end, int32_t value) {
        match_end = end;
        id = value;
      };
      if (position == 0 || !has_prefix_) {
        trie_.for_each_match(piece, position, visit);
      } else {
        trie_.for_each_match_from(continuation_, piece, position, visit);
      }
      is_covered = id >= 0 && vocabulary_.contains(id);
      if (is_covered) ids->push_back(id);
      position = match_end;
    }
    if (is_covered) return Status::ok_status();
    ids->resize(old_size);
    PINFER_RETURN_IF_ERROR(unknown_.check(piece));
    if (unknown_.id) ids->push_back(*unknown_.id);
    return Status::ok_status();
  }

 private:
  static size_t count_characters(std::string_view text) {
    size_t count = 0;
    for (size_t position = 0; position < text.size(); ++count) {
      position += read_code_point(text, position).size;
    }
    return count;
  }

  ByteTrie trie_;
  UnknownToken unknown_;
  uint32_t continuation_;  // the trie's node of the prefix of continuing pieces; 0: none
  bool has_prefix_;
  size_t max_characters_;
  const Vocabulary& vocabulary_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_word_level_model(const nlohmann::json& fields,
                                                                const Vocabulary& vocabulary) {
  PINFER_ASSIGN_OR_RETURN(UnknownToken unknown, UnknownToken::parse(fields, vocabulary));
  return std::unique_ptr<const TokenModel>(
      std::make_unique<WordLevelModel>(std::move(unknown), vocabulary));
}

Result<std::unique_ptr<const TokenModel>> make_word_piece_model(const nlohmann::json& fields,
                                                                const TokenizerFile& file,
                                                                const Vocabulary& vocabulary) {
  PINFER_ASSIGN_OR_RETURN(UnknownToken unknown, UnknownToken::parse(fields, vocabulary));
  PINFER_ASSIGN_OR_RETURN(ByteTrie trie, ByteTrie::open(file, TokenizerSection::MODEL_TRIE_NODES,
                                                        TokenizerSection::MODEL_TRIE_EDGES));
  return std::unique_ptr<const TokenModel>(std::make_unique<WordPieceModel>(
      trie, std::move(unknown), fields.at("continuing_subword_prefix").get<std::string>(),
      fields.at("max_input_chars_per_word").get<size_t>(), vocabulary));
}

}  // namespace pinfer
