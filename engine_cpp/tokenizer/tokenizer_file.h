// tokenizer.bin: a mapped container of sections. The writer is export/tokenizer_format.py, which
// documents the layout; both name the same section ids.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/mapped_file.h"
#include "core/status.h"

namespace pinfer {

enum class TokenizerSection : uint32_t {
  CONFIG = 1,
  TOKEN_OFFSETS = 2,
  TOKEN_BYTES = 3,
  TOKEN_FLAGS = 4,
  TOKEN_HASH = 5,
  SURFACE_OFFSETS = 6,
  SURFACE_BYTES = 7,
  WORD_HASH = 8,
  BYTE_IDS = 9,
  MERGES = 10,
  CLASS_INDEX = 11,
  CLASS_PAGES = 12,
  ADDED_TRIE_NODES = 13,
  ADDED_TRIE_EDGES = 14,
  NORMALIZED_TRIE_NODES = 15,
  NORMALIZED_TRIE_EDGES = 16,
  DECOMPOSITIONS = 17,
  DECOMPOSITION_DATA = 18,
  COMPOSITIONS = 19,
  COMBINING_CLASSES = 20,
  CHAR_MAPS = 21,
  CHAR_MAP_DATA = 22,
  SCORES = 23,
  MODEL_TRIE_NODES = 24,
  MODEL_TRIE_EDGES = 25,
  PRECOMPILED_TRIE = 26,
  PRECOMPILED_TEXT = 27,
  WORD_OFFSETS = 28,
  WORD_BYTES = 29,
};
inline constexpr uint32_t kNumTokenizerSections = 30;

// The mapped (or copied) bytes of a tokenizer.bin. Checks the header and the section table when it
// is made; what the sections hold is checked by their readers. Immutable and thread-safe.
class TokenizerFile {
 public:
  // DATA_LOSS if the file is damaged.
  static Result<std::unique_ptr<TokenizerFile>> of(std::unique_ptr<MappedFile> mapped);
  // Copies `bytes`. `name` is used in messages.
  static Result<std::unique_ptr<TokenizerFile>> copy(std::span<const std::byte> bytes,
                                                     const std::string& name);
  TokenizerFile(const TokenizerFile&) = delete;
  TokenizerFile& operator=(const TokenizerFile&) = delete;

  const std::string& name() const { return name_; }

  // The bytes of a section; empty if the file has none.
  std::span<const std::byte> bytes(TokenizerSection section) const {
    return sections_[static_cast<uint32_t>(section)];
  }
  std::string_view text(TokenizerSection section) const {
    const auto data = bytes(section);
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  // The section as an array. Sections lie at multiples of 64 bytes, so it is aligned.
  // DATA_LOSS if its size is no multiple of T's.
  template <typename T>
  Result<std::span<const T>> array(TokenizerSection section) const {
    const auto data = bytes(section);
    if (data.size() % sizeof(T) != 0) return bad_section(section, "size is not a whole number");
    return std::span<const T>(reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T));
  }

  // DATA_LOSS naming the file and the section.
  Status bad_section(TokenizerSection section, const std::string& what) const;

 private:
  TokenizerFile() = default;
  Status read_section_table();
  Status damaged(const std::string& what) const;

  std::string name_;
  std::span<const std::byte> file_;
  std::unique_ptr<MappedFile> mapped_;
  struct alignas(64) Chunk {
    std::byte bytes[64];
  };
  std::unique_ptr<Chunk[]> copy_;  // owned, if copied
  std::array<std::span<const std::byte>, kNumTokenizerSections> sections_{};
};

}  // namespace pinfer
