// Character classes of one tokenizer: a bit mask for every code point, from a mapped table.
#pragma once

#include <cstdint>
#include <span>

#include "core/status.h"
#include "tokenizer/tokenizer_file.h"

namespace pinfer {

inline constexpr uint32_t kNumCodePointBlocks = 0x1100;  // blocks of 256 code points

// Immutable and thread-safe; borrows the file's memory.
class CharClasses {
 public:
  static Result<CharClasses> open(const TokenizerFile& file) {
    CharClasses classes;
    PINFER_ASSIGN_OR_RETURN(classes.index_, file.array<uint16_t>(TokenizerSection::CLASS_INDEX));
    PINFER_ASSIGN_OR_RETURN(classes.pages_, file.array<uint64_t>(TokenizerSection::CLASS_PAGES));
    if (classes.index_.size() != kNumCodePointBlocks) {
      return file.bad_section(TokenizerSection::CLASS_INDEX, "expected 4352 blocks");
    }
    const size_t num_pages = classes.pages_.size() / 256;
    for (const uint16_t page : classes.index_) {
      if (page >= num_pages) {
        return file.bad_section(TokenizerSection::CLASS_INDEX, "names a page that is not there");
      }
    }
    return classes;
  }

  // The bits of the classes that hold `code_point`. REQUIRES code_point <= 0x10FFFF.
  uint64_t mask(uint32_t code_point) const {
    return pages_[(static_cast<size_t>(index_[code_point >> 8]) << 8) | (code_point & 0xFF)];
  }
  // The masks of the code points 0 to 255. REQUIRES that open() succeeded.
  const uint64_t* first_page() const { return &pages_[static_cast<size_t>(index_[0]) << 8]; }

 private:
  std::span<const uint16_t> index_;
  std::span<const uint64_t> pages_;
};

}  // namespace pinfer
