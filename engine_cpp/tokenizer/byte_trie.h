// A mapped trie over bytes: the longest of many strings at a place, or all of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "tokenizer/tokenizer_file.h"

namespace pinfer {

// Immutable and thread-safe; borrows the file's memory. A damaged trie gives wrong matches, never
// an access outside its sections.
class ByteTrie {
 public:
  struct Node {
    uint32_t first_edge;
    uint32_t num_edges;
    int32_t value;  // -1: no string ends here
    uint32_t zero;
  };

  static Result<ByteTrie> open(const TokenizerFile& file, TokenizerSection nodes,
                               TokenizerSection edges) {
    ByteTrie trie;
    PINFER_ASSIGN_OR_RETURN(trie.nodes_, file.array<Node>(nodes));
    PINFER_ASSIGN_OR_RETURN(trie.edges_, file.array<uint32_t>(edges));
    if (!trie.nodes_.empty()) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        trie.root_[byte] = trie.find_child(0, static_cast<unsigned char>(byte));
      }
    }
    return trie;
  }

  bool empty() const { return nodes_.empty(); }
  bool can_begin_with(char byte) const { return root_[static_cast<unsigned char>(byte)] != 0; }

  // Calls visit(end, value) for each string that begins at `position`, shortest first.
  template <typename Visit>
  void for_each_match(std::string_view text, size_t position, Visit visit) const {
    if (position >= text.size()) return;
    uint32_t node = root_[static_cast<unsigned char>(text[position])];
    while (node != 0) {
      ++position;
      const int32_t value = nodes_[node].value;
      if (value >= 0) visit(position, value);
      if (position == text.size()) return;
      node = find_child(node, static_cast<unsigned char>(text[position]));
    }
  }

  // The node that `prefix` leads to; 0 if no string begins with it (or it is empty).
  uint32_t descend(std::string_view prefix) const {
    uint32_t node = 0;
    for (const char byte : prefix) {
      node = nodes_.empty() ? 0 : find_child(node, static_cast<unsigned char>(byte));
      if (node == 0) break;
    }
    return node;
  }

  // The same for strings whose beginning led to `node` (from descend()); nothing for node 0.
  template <typename Visit>
  void for_each_match_from(uint32_t node, std::string_view text, size_t position,
                           Visit visit) const {
    while (node != 0 && position < text.size()) {
      node = find_child(node, static_cast<unsigned char>(text[position]));
      ++position;
      if (node != 0 && nodes_[node].value >= 0) visit(position, nodes_[node].value);
    }
  }

 private:
  // Edges are (child << 8) | byte, sorted by byte within a node; 0: none, for the root is no child.
  uint32_t find_child(uint32_t node, unsigned char byte) const {
    const Node& parent = nodes_[node];
    if (parent.num_edges > 256 || parent.first_edge > edges_.size() ||
        parent.num_edges > edges_.size() - parent.first_edge) {
      return 0;
    }
    uint32_t low = parent.first_edge;
    uint32_t high = low + parent.num_edges;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      const auto key = static_cast<unsigned char>(edges_[middle] & 0xFF);
      if (key == byte) {
        const uint32_t child = edges_[middle] >> 8;
        return child < nodes_.size() ? child : 0;
      }
      if (key < byte) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return 0;
  }

  std::span<const Node> nodes_;
  std::span<const uint32_t> edges_;
  std::array<uint32_t, 256> root_{};
};

}  // namespace pinfer
