// The step that brings text to a Unicode normal form, with the reference's own tables.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/text_step.h"

namespace pinfer {

namespace {

struct Decomposition {
  uint32_t code_point;
  uint32_t offset;
  uint32_t count;
};
struct Composition {
  uint32_t first;
  uint32_t second;
  uint32_t composed;
};
struct CombiningClass {
  uint32_t code_point;
  uint32_t value;
};

// Hangul syllables are composed and taken apart by arithmetic.
constexpr uint32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTrailBase = 0x11A7;
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTrails = 28;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

struct Character {
  uint32_t value;
  uint32_t combining_class;
  // Characters of the text that it takes the place of. The reference gives a decomposition's to its
  // first part, wherever marks move, and what is composed has those of both.
  size_t consumed;
};

class UnicodeStep : public TextStep {
 public:
  const CharClasses* classes = nullptr;
  uint64_t inert_mask = 0;  // characters that the form leaves alone, whatever stands beside them
  bool composes = false;
  std::span<const Decomposition> decompositions;
  std::span<const uint32_t> data;
  std::span<const Composition> compositions;
  std::span<const CombiningClass> combining_classes;

  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    if (is_inert(piece.text)) {
      out->push_back(piece);
      return Status::ok_status();
    }
    const std::vector<Character> characters = normalize(piece.text);
    const size_t num_at_start = count_characters(piece.text.substr(0, piece.at_start));
    std::string text;
    text.reserve(piece.text.size());
    size_t at_start = 0, num_consumed = 0;
    for (const Character& character : characters) {
      // What takes no place stands with what is in front of it.
      const size_t place =
          character.consumed > 0 || num_consumed == 0 ? num_consumed : num_consumed - 1;
      append_code_point(std::min(character.value, 0x10FFFFu), &text);
      num_consumed += character.consumed;
      if (place < num_at_start) at_start = text.size();
    }
    out->push_back({arena->keep(std::move(text)), at_start, piece.begins_input});
    return Status::ok_status();
  }

 private:
  bool is_inert(std::string_view text) const {
    for (size_t position = 0; position < text.size();) {
      const CodePoint code_point = read_code_point(text, position);
      if (!(classes->mask(code_point.value) & inert_mask)) return false;
      position += code_point.size;
    }
    return true;
  }

  static size_t count_characters(std::string_view text) {
    size_t count = 0;
    for (size_t position = 0; position < text.size(); ++count) {
      position += read_code_point(text, position).size;
    }
    return count;
  }

  uint32_t combining_class(uint32_t code_point) const {
    const auto entry = std::lower_bound(
        combining_classes.begin(), combining_classes.end(), code_point,
        [](const CombiningClass& e, uint32_t value) { return e.code_point < value; });
    return entry != combining_classes.end() && entry->code_point == code_point ? entry->value : 0;
  }

  void decompose(uint32_t code_point, std::vector<Character>* out) const {
    if (code_point >= kHangulBase && code_point < kHangulBase + kNumSyllables) {
      const uint32_t index = code_point - kHangulBase;
      out->push_back({kLeadBase + index / (kNumVowels * kNumTrails), 0, 1});
      out->push_back({kVowelBase + index / kNumTrails % kNumVowels, 0, 0});
      if (index % kNumTrails != 0) out->push_back({kTrailBase + index % kNumTrails, 0, 0});
      return;
    }
    const auto entry = std::lower_bound(
        decompositions.begin(), decompositions.end(), code_point,
        [](const Decomposition& e, uint32_t value) { return e.code_point < value; });
    if (entry == decompositions.end() || entry->code_point != code_point ||
        entry->offset > data.size() || entry->count > data.size() - entry->offset) {
      out->push_back({code_point, combining_class(code_point), 1});
      return;
    }
    size_t consumed = 1;
    for (const uint32_t part : data.subspan(entry->offset, entry->count)) {
      out->push_back({part, combining_class(part), consumed});
      consumed = 0;
    }
  }

  // The composed character, or 0.
  uint32_t compose_pair(uint32_t first, uint32_t second) const {
    if (first >= kLeadBase && first < kLeadBase + kNumLeads && second >= kVowelBase &&
        second < kVowelBase + kNumVowels) {
      return kHangulBase + ((first - kLeadBase) * kNumVowels + (second - kVowelBase)) * kNumTrails;
    }
    if (first >= kHangulBase && first < kHangulBase + kNumSyllables &&
        (first - kHangulBase) % kNumTrails == 0 && second > kTrailBase &&
        second < kTrailBase + kNumTrails) {
      return first + (second - kTrailBase);
    }
    const auto entry =
        std::lower_bound(compositions.begin(), compositions.end(), std::make_pair(first, second),
                         [](const Composition& e, const std::pair<uint32_t, uint32_t>& key) {
                           return std::make_pair(e.first, e.second) < key;
                         });
    const bool found =
        entry != compositions.end() && entry->first == first && entry->second == second;
    return found ? entry->composed : 0;
  }

  // Marks in order of their classes, between starters.
  static void order_marks(std::vector<Character>* characters) {
    auto begin = characters->begin();
    while (begin != characters->end()) {
      if (begin->combining_class == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, characters->end(),
                                    [](const Character& c) { return c.combining_class == 0; });
      std::stable_sort(begin, end, [](const Character& a, const Character& b) {
        return a.combining_class < b.combining_class;
      });
      begin = end;
    }
  }

  void compose(std::vector<Character>* characters) const {
    constexpr size_t kNone = static_cast<size_t>(-1);
    size_t starter = kNone;
    size_t size = 0;
    uint32_t last_class = 0;  // of the last character kept after the starter
    for (const Character& character : *characters) {
      const bool is_adjacent = starter != kNone && size == starter + 1;
      if (starter != kNone && (is_adjacent || (last_class < character.combining_class))) {
        const uint32_t composed = compose_pair((*characters)[starter].value, character.value);
        if (composed != 0) {
          (*characters)[starter].value = composed;
          (*characters)[starter].consumed += character.consumed;
          continue;
        }
      }
      if (character.combining_class == 0) starter = size;
      last_class = character.combining_class;
      (*characters)[size++] = character;
    }
    characters->resize(size);
  }

  std::vector<Character> normalize(std::string_view text) const {
    std::vector<Character> characters;
    characters.reserve(text.size());
    for (size_t position = 0; position < text.size();) {
      const CodePoint code_point = read_code_point(text, position);
      decompose(code_point.value, &characters);
      position += code_point.size;
    }
    order_marks(&characters);
    if (composes) compose(&characters);
    return characters;
  }
};

}  // namespace

Result<std::unique_ptr<const TextStep>> make_unicode_step(const nlohmann::json& fields,
                                                          const TextStepContext& context) {
  const TokenizerFile& file = *context.file;
  auto step = std::make_unique<UnicodeStep>();
  PINFER_ASSIGN_OR_RETURN(step->decompositions,
                          file.array<Decomposition>(TokenizerSection::DECOMPOSITIONS));
  const auto begin = fields.at("begin").get<size_t>();
  const auto count = fields.at("count").get<size_t>();
  if (begin > step->decompositions.size() || count > step->decompositions.size() - begin) {
    return file.bad_section(TokenizerSection::DECOMPOSITIONS, "a form lies outside of it");
  }
  step->decompositions = step->decompositions.subspan(begin, count);
  PINFER_ASSIGN_OR_RETURN(step->data, file.array<uint32_t>(TokenizerSection::DECOMPOSITION_DATA));
  PINFER_ASSIGN_OR_RETURN(step->compositions,
                          file.array<Composition>(TokenizerSection::COMPOSITIONS));
  PINFER_ASSIGN_OR_RETURN(step->combining_classes,
                          file.array<CombiningClass>(TokenizerSection::COMBINING_CLASSES));
  step->classes = context.classes;
  step->composes = fields.at("compose").get<bool>();
  step->inert_mask = uint64_t{1} << (fields.at("inert_class").get<uint32_t>() % 64);
  return std::unique_ptr<const TextStep>(std::move(step));
}

}  // namespace pinfer
