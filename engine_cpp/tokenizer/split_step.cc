// Steps driven by a pattern: splitting at its matches and replacing them.
#include <nlohmann/json.hpp>

#include "core/utf8.h"
#include "tokenizer/splitter.h"
#include "tokenizer/text_step.h"

namespace pinfer {

namespace {

enum class Behavior { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };

struct Span {
  size_t begin, end;
  bool is_match;
};

Result<Behavior> parse_behavior(const std::string& name) {
  if (name == "Removed") return Behavior::REMOVED;
  if (name == "Isolated") return Behavior::ISOLATED;
  if (name == "MergedWithPrevious") return Behavior::MERGED_WITH_PREVIOUS;
  if (name == "MergedWithNext") return Behavior::MERGED_WITH_NEXT;
  if (name == "Contiguous") return Behavior::CONTIGUOUS;
  return Status::invalid_argument("split behavior '" + name + "' is unknown");
}

// Matches and the text between them, in order, covering all of the text.
Status find_spans(const Splitter& splitter, std::string_view text, bool invert,
                  std::vector<Span>* spans) {
  size_t covered = 0;
  const auto visit = [&](const PatternMatch& match) {
    if (covered != match.begin) spans->push_back({covered, match.begin, invert});
    spans->push_back({match.begin, match.end, !invert});
    covered = match.end;
  };
  PINFER_RETURN_IF_ERROR(splitter.for_each_match(text, visit));
  if (covered != text.size()) spans->push_back({covered, text.size(), invert});
  return Status::ok_status();
}

class SplitStep : public TextStep {
 public:
  SplitStep(Splitter splitter, Behavior behavior, bool invert)
      : splitter_(std::move(splitter)), behavior_(behavior), invert_(invert) {}

  Status apply(const TextPiece& piece, TextArena*, std::vector<TextPiece>* out) const override {
    std::vector<Span> spans;
    PINFER_RETURN_IF_ERROR(find_spans(splitter_, piece.text, invert_, &spans));
    const size_t first = out->size();
    bool previous_match = false;
    switch (behavior_) {
      case Behavior::ISOLATED:
        for (const Span& span : spans) out->push_back(piece.part(span.begin, span.end));
        break;
      case Behavior::REMOVED:
        for (const Span& span : spans) {
          if (!span.is_match) out->push_back(piece.part(span.begin, span.end));
        }
        break;
      case Behavior::CONTIGUOUS:
      case Behavior::MERGED_WITH_PREVIOUS: {
        size_t begin = 0;
        for (const Span& span : spans) {
          const bool merges = behavior_ == Behavior::CONTIGUOUS ? span.is_match == previous_match
                                                                : span.is_match && !previous_match;
          if (merges && out->size() > first) {
            out->back() = piece.part(begin, span.end);
          } else {
            begin = span.begin;
            out->push_back(piece.part(span.begin, span.end));
          }
          previous_match = span.is_match;
        }
        break;
      }
      case Behavior::MERGED_WITH_NEXT: {
        size_t end = piece.text.size();
        for (size_t i = spans.size(); i-- > 0;) {
          const Span& span = spans[i];
          if (span.is_match && !previous_match && out->size() > first) {
            out->back() = piece.part(span.begin, end);
          } else {
            end = span.end;
            out->push_back(piece.part(span.begin, span.end));
          }
          previous_match = span.is_match;
        }
        std::reverse(out->begin() + static_cast<std::ptrdiff_t>(first), out->end());
        break;
      }
    }
    return Status::ok_status();
  }

 private:
  Splitter splitter_;
  Behavior behavior_;
  bool invert_;
};

class ReplaceStep : public TextStep {
 public:
  ReplaceStep(Splitter splitter, std::string content)
      : splitter_(std::move(splitter)), content_(std::move(content)) {}

  Status apply(const TextPiece& piece, TextArena* arena,
               std::vector<TextPiece>* out) const override {
    std::string text;
    size_t covered = 0;
    size_t at_start = piece.at_start;
    const auto visit = [&](const PatternMatch& match) {
      // A replacement belongs to the last character that it stands for, one of nothing to the
      // character before it or to the beginning of the input.
      if (match.end == 0) {
        if (piece.begins_input) at_start += content_.size();
      } else if (match.end <= piece.at_start) {
        at_start += content_.size() - (match.end - match.begin);
      } else if (match.begin < piece.at_start) {
        at_start = text.size() + (match.begin - covered);
      }
      text.append(piece.text, covered, match.begin - covered);
      text.append(content_);
      covered = match.end;
    };
    PINFER_RETURN_IF_ERROR(splitter_.for_each_match(piece.text, visit));
    if (covered == 0 && text.empty()) {
      out->push_back(piece);
      return Status::ok_status();
    }
    text.append(piece.text, covered);
    at_start = std::min(at_start, text.size());
    out->push_back({arena->keep(std::move(text)), at_start, piece.begins_input});
    return Status::ok_status();
  }

 private:
  Splitter splitter_;
  std::string content_;
};

}  // namespace

Result<std::unique_ptr<const TextStep>> make_split_step(const nlohmann::json& fields,
                                                        const TextStepContext& context) {
  PINFER_ASSIGN_OR_RETURN(Splitter splitter, Splitter::parse(fields.at("pattern"), context));
  PINFER_ASSIGN_OR_RETURN(const Behavior behavior,
                          parse_behavior(fields.at("behavior").get<std::string>()));
  return std::unique_ptr<const TextStep>(
      std::make_unique<SplitStep>(std::move(splitter), behavior, fields.at("invert").get<bool>()));
}

Result<std::unique_ptr<const TextStep>> make_replace_step(const nlohmann::json& fields,
                                                          const TextStepContext& context) {
  PINFER_ASSIGN_OR_RETURN(Splitter splitter, Splitter::parse(fields.at("pattern"), context));
  return std::unique_ptr<const TextStep>(
      std::make_unique<ReplaceStep>(std::move(splitter), fields.at("content").get<std::string>()));
}

}  // namespace pinfer
