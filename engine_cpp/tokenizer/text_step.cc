#include "tokenizer/text_step.h"

#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/byte_level.h"

namespace pinfer {

namespace {

// Writes text before a piece.
class PrependStep : public TextStep {
 public:
  enum class When { ALWAYS, UNLESS_PRESENT, AT_START };

  PrependStep(std::string text, When when) : text_(std::move(text)), when_(when) {}

  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    const bool keeps = when_ != When::ALWAYS && (piece.text.starts_with(text_) ||
                                                 (when_ == When::AT_START && piece.at_start == 0));
    if (keeps) {
      out->push_back(piece);
    } else {
      std::string text = text_;
      text += piece.text;
      const size_t at_start = piece.at_start > 0 ? piece.at_start + text_.size() : 0;
      out->push_back({arena->keep(std::move(text)), at_start, piece.begins_input});
    }
    return Status::ok_status();
  }

 private:
  std::string text_;
  When when_;
};

// Cuts characters of a class from the ends.
class StripStep : public TextStep {
 public:
  StripStep(const CharClasses& classes, uint64_t mask, bool left, bool right)
      : classes_(classes), mask_(mask), left_(left), right_(right) {}

  Status apply(const TextPiece& piece, TextArena*, std::vector<TextPiece>* out) const override {
    const std::string_view text = piece.text;
    size_t begin = 0;
    size_t end = text.size();
    while (left_ && begin < end && is_member(text, begin))
      begin += read_code_point(text, begin).size;
    while (right_ && end > begin) {
      const size_t last = previous_code_point(text, end);
      if (!is_member(text, last)) break;
      end = last;
    }
    out->push_back(piece.part(begin, end));
    out->back().begins_input = piece.begins_input;
    return Status::ok_status();
  }

 private:
  bool is_member(std::string_view text, size_t position) const {
    return (classes_.mask(read_code_point(text, position).value) & mask_) != 0;
  }

  const CharClasses& classes_;
  uint64_t mask_;
  bool left_, right_;
};

// Writes each byte as its character of the byte-level alphabet.
class ByteMapStep : public TextStep {
 public:
  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    const size_t at_start = to_byte_alphabet(piece.text.substr(0, piece.at_start)).size();
    out->push_back({arena->keep(to_byte_alphabet(piece.text)), at_start, piece.begins_input});
    return Status::ok_status();
  }
};

Result<std::unique_ptr<const TextStep>> make_step(const nlohmann::json& fields,
                                                  const TextStepContext& context) {
  const auto name = fields.at("step").get<std::string>();
  if (name == "split") return make_split_step(fields, context);
  if (name == "replace") return make_replace_step(fields, context);
  if (name == "unicode") return make_unicode_step(fields, context);
  if (name == "char_map") return make_char_map_step(fields, context);
  if (name == "precompiled") return make_precompiled_step(fields, context);
  if (name == "prepend") return make_prepend_step(fields);
  if (name == "strip") return make_strip_step(fields, context);
  if (name == "byte_map") return make_byte_map_step();
  return Status::failed_precondition("tokenizer step '" + name + "' is unknown; export again");
}

}  // namespace

Result<std::unique_ptr<const TextStep>> make_prepend_step(const nlohmann::json& fields) {
  const auto name = fields.at("when").get<std::string>();
  PrependStep::When when = PrependStep::When::ALWAYS;
  if (name == "unless_present") {
    when = PrependStep::When::UNLESS_PRESENT;
  } else if (name == "at_start") {
    when = PrependStep::When::AT_START;
  } else if (name != "always") {
    return Status::invalid_argument("prepend rule '" + name + "' is unknown");
  }
  return std::unique_ptr<const TextStep>(
      std::make_unique<PrependStep>(fields.at("text").get<std::string>(), when));
}

Result<std::unique_ptr<const TextStep>> make_strip_step(const nlohmann::json& fields,
                                                        const TextStepContext& context) {
  const uint64_t mask = uint64_t{1} << (fields.at("class").get<uint32_t>() % 64);
  return std::unique_ptr<const TextStep>(std::make_unique<StripStep>(
      *context.classes, mask, fields.at("left").get<bool>(), fields.at("right").get<bool>()));
}

std::unique_ptr<const TextStep> make_byte_map_step() { return std::make_unique<ByteMapStep>(); }

Result<TextSteps> TextSteps::parse(const nlohmann::json& steps, const TextStepContext& context) {
  TextSteps result;
  for (const auto& fields : steps) {
    PINFER_ASSIGN_OR_RETURN(std::unique_ptr<const TextStep> step, make_step(fields, context));
    result.steps_.push_back(std::move(step));
  }
  return result;
}

Status TextSteps::apply(const TextPiece& piece, TextArena* arena,
                        std::vector<TextPiece>* out) const {
  if (steps_.empty()) {
    out->push_back(piece);
    return Status::ok_status();
  }
  if (steps_.size() == 1) return steps_[0]->apply(piece, arena, out);
  std::vector<TextPiece> pieces{piece};
  std::vector<TextPiece> next;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool is_last = i + 1 == steps_.size();
    if (!is_last) next.clear();
    for (const TextPiece& part : pieces) {
      if (part.text.empty()) continue;
      PINFER_RETURN_IF_ERROR(steps_[i]->apply(part, arena, is_last ? out : &next));
    }
    if (!is_last) pieces.swap(next);
  }
  return Status::ok_status();
}

}  // namespace pinfer
