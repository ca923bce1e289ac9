// The step that replaces single characters by texts: lower case, accents removed, and the like.
#include <nlohmann/json.hpp>
#include <optional>

#include "core/utf8.h"
#include "tokenizer/text_step.h"

namespace pinfer {

namespace {

struct CharMapEntry {
  uint32_t code_point;
  uint32_t offset;
  uint32_t size;
};

class CharMapStep : public TextStep {
 public:
  CharMapStep(const CharClasses& classes, uint64_t mask, std::span<const CharMapEntry> entries,
              std::string_view data)
      : classes_(classes), mask_(mask), entries_(entries), data_(data) {}

  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    const std::string_view text = piece.text;
    std::string mapped;
    size_t copied = 0;
    size_t at_start = piece.at_start;
    bool changed = false;
    for (size_t position = 0; position < text.size();) {
      const CodePoint code_point = read_code_point(text, position);
      const size_t next = position + code_point.size;
      if (classes_.mask(code_point.value) & mask_) {
        const std::string_view replacement = find(code_point.value);
        mapped.append(text, copied, position - copied);
        mapped.append(replacement);
        copied = next;
        changed = true;
        if (position < piece.at_start) at_start += replacement.size() - code_point.size;
      }
      position = next;
    }
    if (!changed) {
      out->push_back(piece);
      return Status::ok_status();
    }
    mapped.append(text, copied);
    at_start = std::min(at_start, mapped.size());
    out->push_back({arena->keep(std::move(mapped)), at_start, piece.begins_input});
    return Status::ok_status();
  }

 private:
  // Nothing for what has no entry.
  std::string_view find(uint32_t code_point) const {
    const auto entry = std::lower_bound(
        entries_.begin(), entries_.end(), code_point,
        [](const CharMapEntry& e, uint32_t value) { return e.code_point < value; });
    if (entry == entries_.end() || entry->code_point != code_point ||
        entry->offset > data_.size() || entry->size > data_.size() - entry->offset) {
      return {};
    }
    return data_.substr(entry->offset, entry->size);
  }

  const CharClasses& classes_;
  uint64_t mask_;
  std::span<const CharMapEntry> entries_;
  std::string_view data_;
};

}  // namespace

Result<std::unique_ptr<const TextStep>> make_char_map_step(const nlohmann::json& fields,
                                                           const TextStepContext& context) {
  PINFER_ASSIGN_OR_RETURN(const auto entries,
                          context.file->array<CharMapEntry>(TokenizerSection::CHAR_MAPS));
  const auto begin = fields.at("begin").get<size_t>();
  const auto count = fields.at("count").get<size_t>();
  if (begin > entries.size() || count > entries.size() - begin) {
    return context.file->bad_section(TokenizerSection::CHAR_MAPS, "a map lies outside of it");
  }
  const uint64_t mask = uint64_t{1} << (fields.at("class").get<uint32_t>() % 64);
  return std::unique_ptr<const TextStep>(
      std::make_unique<CharMapStep>(*context.classes, mask, entries.subspan(begin, count),
                                    context.file->text(TokenizerSection::CHAR_MAP_DATA)));
}

}  // namespace pinfer
