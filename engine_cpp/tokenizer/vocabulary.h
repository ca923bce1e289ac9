// The tokens of one tokenizer: texts, flags and look-up by text, all mapped.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "core/status.h"
#include "tokenizer/tokenizer_file.h"

namespace pinfer {

// Bits of a token's flags; the numbers are those of export/tokenizer_format.py.
enum TokenFlag : uint8_t {
  TOKEN_EXISTS = 1,
  TOKEN_IN_MODEL = 2,      // in the model's vocabulary, not only added
  TOKEN_SPECIAL = 4,       // left out by skip_special_tokens
  TOKEN_LSTRIP = 8,        // an added token that takes the spaces before it
  TOKEN_RSTRIP = 16,       // ... after it
  TOKEN_SINGLE_WORD = 32,  // ... and only stands alone
  TOKEN_BYTE = 64,         // stands for one byte in decoded text
};

// The hash that the exporter fills the tables with.
inline uint64_t hash_token_text(std::string_view text) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  uint64_t hash = text.size() * kMultiplier;
  const char* data = text.data();
  size_t left = text.size();
  while (left > 0) {
    uint64_t word = 0;
    const size_t size = left < 8 ? left : 8;
    std::memcpy(&word, data, size);
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
    data += size;
    left -= size;
  }
  return hash;
}

// A table of strings by id: offsets into one run of bytes. Damaged offsets read as empty strings.
class StringTable {
 public:
  static Result<StringTable> open(const TokenizerFile& file, TokenizerSection offsets,
                                  TokenizerSection bytes) {
    StringTable table;
    PINFER_ASSIGN_OR_RETURN(table.offsets_, file.array<uint32_t>(offsets));
    table.bytes_ = file.text(bytes);
    return table;
  }
  size_t size() const { return offsets_.empty() ? 0 : offsets_.size() - 1; }
  // REQUIRES index < size().
  std::string_view at(size_t index) const {
    const uint32_t begin = offsets_[index];
    const uint32_t end = offsets_[index + 1];
    if (begin > end || end > bytes_.size()) return {};
    return bytes_.substr(begin, end - begin);
  }

 private:
  std::span<const uint32_t> offsets_;
  std::string_view bytes_;
};

// A hash set of ids keyed by their strings in a StringTable.
class TokenHash {
 public:
  static Result<TokenHash> open(const TokenizerFile& file, TokenizerSection section) {
    TokenHash hash;
    PINFER_ASSIGN_OR_RETURN(hash.slots_, file.array<uint32_t>(section));
    const size_t size = hash.slots_.size();
    if ((size & (size - 1)) != 0) return file.bad_section(section, "size is no power of two");
    return hash;
  }
  bool empty() const { return slots_.empty(); }
  // The id whose string is `text`, or -1.
  int32_t find(std::string_view text, const StringTable& strings) const {
    if (slots_.empty()) return -1;
    const size_t mask = slots_.size() - 1;
    size_t slot = hash_token_text(text) & mask;
    for (size_t probes = 0; probes <= mask && slots_[slot] != 0; ++probes) {
      const uint32_t id = slots_[slot] - 1;
      if (id < strings.size() && strings.at(id) == text) return static_cast<int32_t>(id);
      slot = (slot + 1) & mask;
    }
    return -1;
  }

 private:
  std::span<const uint32_t> slots_;
};

// Immutable and thread-safe; borrows the file's memory.
class Vocabulary {
 public:
  static Result<Vocabulary> open(const TokenizerFile& file) {
    Vocabulary vocabulary;
    PINFER_ASSIGN_OR_RETURN(
        vocabulary.texts_,
        StringTable::open(file, TokenizerSection::TOKEN_OFFSETS, TokenizerSection::TOKEN_BYTES));
    PINFER_ASSIGN_OR_RETURN(vocabulary.flags_, file.array<uint8_t>(TokenizerSection::TOKEN_FLAGS));
    PINFER_ASSIGN_OR_RETURN(vocabulary.hash_, TokenHash::open(file, TokenizerSection::TOKEN_HASH));
    if (vocabulary.flags_.size() != vocabulary.texts_.size() || vocabulary.flags_.empty() ||
        vocabulary.flags_.size() > INT32_MAX) {
      return file.bad_section(TokenizerSection::TOKEN_FLAGS,
                              "expected a flag for each of " +
                                  std::to_string(vocabulary.texts_.size()) + " tokens, found " +
                                  std::to_string(vocabulary.flags_.size()));
    }
    return vocabulary;
  }

  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(flags_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  // REQUIRES contains(id), for both.
  uint8_t flags(int32_t id) const { return flags_[static_cast<size_t>(id)]; }
  std::string_view text(int32_t id) const { return texts_.at(static_cast<size_t>(id)); }

  // The token with this text, of the model or added; -1 if there is none.
  int32_t find(std::string_view text) const { return hash_.find(text, texts_); }
  // The same among the model's tokens.
  int32_t find_in_model(std::string_view text) const {
    const int32_t id = find(text);
    return id >= 0 && (flags(id) & TOKEN_IN_MODEL) ? id : -1;
  }

 private:
  StringTable texts_;
  std::span<const uint8_t> flags_;
  TokenHash hash_;
};

}  // namespace pinfer
