// Byte pair encoding proper: merging neighbouring symbols, the lowest rank first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer_file.h"

namespace pinfer {

struct BpeMerge {
  uint32_t left;  // 0xFFFFFFFF: an empty slot
  uint32_t right;
  uint32_t rank;
  uint32_t merged;
};

// The mapped hash table of merges. Immutable and thread-safe.
class BpeMerges {
 public:
  static Result<BpeMerges> open(const TokenizerFile& file, int32_t vocab_size);

  // Merges `symbols` in place until no merge applies; the leftmost of equal ranks goes first.
  // Takes time n log n for n symbols.
  void apply(std::vector<int32_t>* symbols) const;

 private:
  static constexpr uint32_t kEmpty = 0xFFFFFFFF;

  // The merge of two symbols, or null.
  const BpeMerge* find(int32_t left, int32_t right) const {
    const auto key_left = static_cast<uint32_t>(left);
    const auto key_right = static_cast<uint32_t>(right);
    uint64_t hash = ((static_cast<uint64_t>(key_left) << 32) | key_right) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 32;
    size_t slot = hash & mask_;
    for (size_t probes = 0; probes <= mask_; ++probes) {
      const BpeMerge& merge = slots_[slot];
      if (merge.left == key_left && merge.right == key_right) {
        return merge.merged < vocab_size_ ? &merge : nullptr;
      }
      if (merge.left == kEmpty) return nullptr;
      slot = (slot + 1) & mask_;
    }
    return nullptr;
  }

  void apply_to_short(std::vector<int32_t>* symbols) const;
  void apply_to_long(std::vector<int32_t>* symbols) const;

  std::span<const BpeMerge> slots_;
  size_t mask_ = 0;
  uint32_t vocab_size_ = 0;
};

}  // namespace pinfer
