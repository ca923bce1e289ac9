// The step that maps text by a SentencePiece character map: a double array of byte strings and the
// texts that replace them. Short grapheme clusters are looked up whole, longer ones by character.
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/splitter.h"
#include "tokenizer/text_step.h"

namespace pinfer {

namespace {

constexpr size_t kMaxClusterSize = 5;  // bytes

// A unit of the double array, in the layout that SentencePiece stores.
class Unit {
 public:
  explicit Unit(uint32_t bits) : bits_(bits) {}
  bool has_leaf() const { return (bits_ >> 8) & 1; }
  uint32_t value() const { return bits_ & 0x7FFFFFFF; }
  uint32_t label() const { return bits_ & (0x80000000u | 0xFF); }
  uint32_t offset() const { return (bits_ >> 10) << ((bits_ & 0x200) >> 6); }

 private:
  uint32_t bits_;
};

class PrecompiledStep : public TextStep {
 public:
  PrecompiledStep(Splitter graphemes, std::span<const uint32_t> trie, std::string_view texts)
      : graphemes_(std::move(graphemes)), trie_(trie), texts_(texts) {}

  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    std::string mapped;
    mapped.reserve(piece.text.size());
    size_t at_start = 0;
    size_t covered = 0;
    const auto visit = [&](const PatternMatch& match) {
      map_cluster(piece.text.substr(covered, match.end - covered), &mapped);
      covered = match.end;
      if (match.begin < piece.at_start) at_start = mapped.size();
    };
    PINFER_RETURN_IF_ERROR(graphemes_.for_each_match(piece.text, visit));
    map_cluster(piece.text.substr(covered), &mapped);
    // What follows characters removed from the beginning counts as the beginning.
    if (piece.at_start > 0 && at_start == 0 && !mapped.empty()) {
      at_start = read_code_point(mapped, 0).size;
    }
    out->push_back({arena->keep(std::move(mapped)), at_start, piece.begins_input});
    return Status::ok_status();
  }

 private:
  void map_cluster(std::string_view cluster, std::string* mapped) const {
    std::string_view replacement;
    if (cluster.size() <= kMaxClusterSize && find(cluster, &replacement)) {
      mapped->append(replacement);
      return;
    }
    for (size_t position = 0; position < cluster.size();) {
      const size_t size = read_code_point(cluster, position).size;
      const std::string_view character = cluster.substr(position, size);
      mapped->append(find(character, &replacement) ? replacement : character);
      position += size;
    }
  }

  // The replacement for the shortest entry that `key` begins with: the reference's rule.
  bool find(std::string_view key, std::string_view* replacement) const {
    if (trie_.empty()) return false;
    uint32_t node = Unit(trie_[0]).offset();
    for (const char byte : key) {
      if (byte == 0) return false;
      node ^= static_cast<unsigned char>(byte);
      if (node >= trie_.size()) return false;
      const Unit unit(trie_[node]);
      if (unit.label() != static_cast<unsigned char>(byte)) return false;
      node ^= unit.offset();
      if (node >= trie_.size()) return false;
      if (unit.has_leaf()) {
        const uint32_t begin = Unit(trie_[node]).value();
        if (begin > texts_.size()) return false;
        const std::string_view rest = texts_.substr(begin);
        *replacement = rest.substr(0, rest.find('\0'));
        return true;
      }
    }
    return false;
  }

  Splitter graphemes_;
  std::span<const uint32_t> trie_;
  std::string_view texts_;
};

}  // namespace

Result<std::unique_ptr<const TextStep>> make_precompiled_step(const nlohmann::json& fields,
                                                              const TextStepContext& context) {
  PINFER_ASSIGN_OR_RETURN(Splitter graphemes, Splitter::parse(fields.at("graphemes"), context));
  PINFER_ASSIGN_OR_RETURN(const auto trie,
                          context.file->array<uint32_t>(TokenizerSection::PRECOMPILED_TRIE));
  return std::unique_ptr<const TextStep>(std::make_unique<PrecompiledStep>(
      std::move(graphemes), trie, context.file->text(TokenizerSection::PRECOMPILED_TEXT)));
}

}  // namespace pinfer
