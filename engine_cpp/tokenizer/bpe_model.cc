// BPE: over raw bytes (byte-level tokenizers) or over characters with fallbacks.
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/utf8.h"
#include "tokenizer/bpe_merges.h"
#include "tokenizer/token_model.h"

namespace pinfer {

namespace {

// Words that become one token at once: the exporter has tried their merges.
struct WholeWords {
  TokenHash hash;
  StringTable texts;

  static Result<WholeWords> open(const TokenizerFile& file, const Vocabulary& vocabulary) {
    WholeWords words;
    PINFER_ASSIGN_OR_RETURN(words.hash, TokenHash::open(file, TokenizerSection::WORD_HASH));
    PINFER_ASSIGN_OR_RETURN(words.texts, StringTable::open(file, TokenizerSection::WORD_OFFSETS,
                                                           TokenizerSection::WORD_BYTES));
    if (words.texts.size() != static_cast<size_t>(vocabulary.size())) {
      return file.bad_section(TokenizerSection::WORD_OFFSETS, "expected one text per token");
    }
    return words;
  }
  int32_t find(std::string_view word) const { return hash.find(word, texts); }
};

// Pieces are raw bytes; every byte has a token.
class ByteLevelBpe : public TokenModel {
 public:
  ByteLevelBpe(BpeMerges merges, WholeWords words, const ByteIds& byte_ids)
      : merges_(merges), words_(words), byte_ids_(byte_ids) {}

  Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const override {
    const int32_t word = words_.find(piece);
    if (word >= 0) {
      ids->push_back(word);
      return Status::ok_status();
    }
    thread_local std::vector<int32_t> symbols;
    symbols.clear();
    for (const char byte : piece) {
      symbols.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    }
    merges_.apply(&symbols);
    ids->insert(ids->end(), symbols.begin(), symbols.end());
    return Status::ok_status();
  }

 private:
  BpeMerges merges_;
  WholeWords words_;
  ByteIds byte_ids_;
};

struct CharacterBpeOptions {
  bool fuse_unk = false;
  bool has_byte_fallback = false;
  UnknownToken unknown;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  std::string word_start;  // a character before which no merge reaches back; empty: none
};

// Pieces are text; symbols are characters.
class CharacterBpe : public TokenModel {
 public:
  CharacterBpe(BpeMerges merges, WholeWords words, const Vocabulary& vocabulary,
               const ByteIds& byte_ids, CharacterBpeOptions options)
      : merges_(merges),
        words_(words),
        vocabulary_(vocabulary),
        byte_ids_(byte_ids),
        options_(std::move(options)) {}

  Status tokenize(std::string_view piece, std::vector<int32_t>* ids) const override {
    const std::string& start = options_.word_start;
    size_t begin = 0;
    while (!start.empty()) {
      // The next word begins where a start follows something else.
      size_t next = begin;
      while (piece.substr(next).starts_with(start)) next += start.size();
      next = piece.find(start, next);
      if (next == std::string_view::npos) break;
      PINFER_RETURN_IF_ERROR(tokenize_word(piece.substr(begin, next - begin), ids));
      begin = next;
    }
    return tokenize_word(piece.substr(begin), ids);
  }

 private:
  Status tokenize_word(std::string_view word, std::vector<int32_t>* ids) const {
    const int32_t id = words_.find(word);
    if (id >= 0) {
      ids->push_back(id);
      return Status::ok_status();
    }
    thread_local std::vector<int32_t> symbols;
    symbols.clear();
    PINFER_RETURN_IF_ERROR(make_symbols(word, &symbols));
    merges_.apply(&symbols);
    ids->insert(ids->end(), symbols.begin(), symbols.end());
    return Status::ok_status();
  }

  int32_t find_character(std::string_view character, bool is_first, bool is_last,
                         std::string* spelled) const {
    const bool has_prefix = !is_first && !options_.continuing_subword_prefix.empty();
    const bool has_suffix = is_last && !options_.end_of_word_suffix.empty();
    if (!has_prefix && !has_suffix) {
      spelled->assign(character);
      return vocabulary_.find_in_model(character);
    }
    spelled->clear();
    if (has_prefix) spelled->append(options_.continuing_subword_prefix);
    spelled->append(character);
    if (has_suffix) spelled->append(options_.end_of_word_suffix);
    return vocabulary_.find_in_model(*spelled);
  }

  bool append_bytes(std::string_view text, std::vector<int32_t>* symbols) const {
    if (!options_.has_byte_fallback) return false;
    for (const char byte : text) {
      if (byte_ids_[static_cast<unsigned char>(byte)] < 0) return false;
    }
    for (const char byte : text) symbols->push_back(byte_ids_[static_cast<unsigned char>(byte)]);
    return true;
  }

  Status make_symbols(std::string_view piece, std::vector<int32_t>* symbols) const {
    // An unknown character is kept back until a known one follows, also past bytes that stand for
    // other characters: the reference does so, and ids must be the same.
    bool unk_waits = false;
    std::string spelled;
    for (size_t position = 0; position < piece.size();) {
      const size_t next = position + read_code_point(piece, position).size;
      const std::string_view character = piece.substr(position, next - position);
      const int32_t id = find_character(character, position == 0, next == piece.size(), &spelled);
      position = next;
      if (id >= 0) {
        if (unk_waits) symbols->push_back(*options_.unknown.id);
        unk_waits = false;
        symbols->push_back(id);
        continue;
      }
      if (append_bytes(spelled, symbols)) continue;
      PINFER_RETURN_IF_ERROR(options_.unknown.check(character));
      if (!options_.unknown.id) continue;
      if (unk_waits && !options_.fuse_unk) symbols->push_back(*options_.unknown.id);
      unk_waits = true;
    }
    if (unk_waits) symbols->push_back(*options_.unknown.id);
    return Status::ok_status();
  }

  BpeMerges merges_;
  WholeWords words_;
  const Vocabulary& vocabulary_;
  ByteIds byte_ids_;
  CharacterBpeOptions options_;
};

}  // namespace

Result<std::unique_ptr<const TokenModel>> make_bpe_model(const nlohmann::json& fields,
                                                         const TokenizerFile& file,
                                                         const Vocabulary& vocabulary) {
  PINFER_ASSIGN_OR_RETURN(BpeMerges merges, BpeMerges::open(file, vocabulary.size()));
  PINFER_ASSIGN_OR_RETURN(WholeWords words, WholeWords::open(file, vocabulary));
  const bool is_byte_level = fields.at("byte_level").get<bool>();
  PINFER_ASSIGN_OR_RETURN(const ByteIds byte_ids,
                          read_byte_ids(file, vocabulary, is_byte_level ? 0 : -1));
  if (is_byte_level) {
    return std::unique_ptr<const TokenModel>(
        std::make_unique<ByteLevelBpe>(merges, words, byte_ids));
  }
  CharacterBpeOptions options;
  options.fuse_unk = fields.at("fuse_unk").get<bool>();
  options.has_byte_fallback = fields.at("byte_fallback").get<bool>();
  PINFER_ASSIGN_OR_RETURN(options.unknown, UnknownToken::parse(fields, vocabulary));
  options.continuing_subword_prefix = fields.at("continuing_subword_prefix").get<std::string>();
  options.end_of_word_suffix = fields.at("end_of_word_suffix").get<std::string>();
  options.word_start = fields.at("word_start").get<std::string>();
  return std::unique_ptr<const TokenModel>(
      std::make_unique<CharacterBpe>(merges, words, vocabulary, byte_ids, std::move(options)));
}

}  // namespace pinfer
