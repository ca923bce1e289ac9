#include "tokenizer/decoder_step.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/utf8.h"
#include "tokenizer/splitter.h"

namespace pinfer {

namespace {

void replace_all(std::string_view from, std::string_view to, std::string* text) {
  for (size_t at = text->find(from); at != std::string::npos;
       at = text->find(from, at + to.size())) {
    text->replace(at, from.size(), to);
  }
}

class ReplaceDecoderStep : public DecoderStep {
 public:
  ReplaceDecoderStep(Splitter splitter, std::string content)
      : splitter_(std::move(splitter)), content_(std::move(content)) {}

  void apply(bool, std::string* text) const override {
    if (text->empty()) return;  // even where the pattern matches nothing
    std::string result;
    size_t covered = 0;
    const Status status = splitter_.for_each_match(*text, [&](const PatternMatch& match) {
      result.append(*text, covered, match.begin - covered);
      result.append(content_);
      covered = match.end;
    });
    // A pattern that gives up on a text leaves it as it is.
    if (!status.ok()) return;
    result.append(*text, covered);
    *text = std::move(result);
  }

 private:
  Splitter splitter_;
  std::string content_;
};

// Cuts up to a number of equal characters from both ends.
class StripDecoderStep : public DecoderStep {
 public:
  StripDecoderStep(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}

  void apply(bool, std::string* text) const override {
    size_t begin = 0;
    for (size_t i = 0; i < start_ && std::string_view(*text).substr(begin).starts_with(content_);
         ++i) {
      begin += content_.size();
    }
    size_t end = text->size();
    for (size_t i = 0; i < stop_ && end > begin &&
                       std::string_view(*text).substr(begin, end - begin).ends_with(content_);
         ++i) {
      end -= content_.size();
    }
    *text = text->substr(begin, end - begin);
  }

 private:
  std::string content_;
  size_t start_, stop_;
};

// Spaces again; none at the beginning of the text.
class MetaspaceDecoderStep : public DecoderStep {
 public:
  MetaspaceDecoderStep(std::string replacement, bool strips_first)
      : replacement_(std::move(replacement)), strips_first_(strips_first) {}

  void apply(bool is_first, std::string* text) const override {
    replace_all(replacement_, is_first && strips_first_ ? "" : " ", text);
  }

 private:
  std::string replacement_;
  bool strips_first_;
};

// A space before each word, none before the rest of one.
class WordPieceDecoderStep : public DecoderStep {
 public:
  WordPieceDecoderStep(std::string prefix, bool cleans_up)
      : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}

  void apply(bool is_first, std::string* text) const override {
    if (!is_first) {
      if (text->starts_with(prefix_)) {
        text->erase(0, prefix_.size());
      } else {
        text->insert(text->begin(), ' ');
      }
    }
    if (!cleans_up_) return;
    // The reference's own list, in its order.
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kCleanUps = {{
        {" .", "."},
        {" ?", "?"},
        {" !", "!"},
        {" ,", ","},
        {" ' ", "'"},
        {" n't", "n't"},
        {" 'm", "'m"},
        {" do not", " don't"},
        {" 's", "'s"},
        {" 've", "'ve"},
        {" 're", "'re"},
    }};
    for (const auto& [from, to] : kCleanUps) replace_all(from, to, text);
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

// A space between all tokens: what the reference does without a decoder.
class SeparateDecoderStep : public DecoderStep {
 public:
  void apply(bool is_first, std::string* text) const override {
    if (!is_first) text->insert(text->begin(), ' ');
  }
};

}  // namespace

Result<std::unique_ptr<const DecoderStep>> make_decoder_step(const nlohmann::json& fields,
                                                             const TextStepContext& context) {
  using Made = std::unique_ptr<const DecoderStep>;
  const auto name = fields.at("step").get<std::string>();
  const auto string = [&fields](const char* field) { return fields.at(field).get<std::string>(); };
  if (name == "replace") {
    PINFER_ASSIGN_OR_RETURN(Splitter splitter, Splitter::parse(fields.at("pattern"), context));
    return Made(std::make_unique<ReplaceDecoderStep>(std::move(splitter), string("content")));
  }
  if (name == "strip" || name == "metaspace") {
    const std::string text = string(name == "strip" ? "content" : "replacement");
    if (text.empty()) return Status::invalid_argument("decoder " + name + ": an empty text");
    if (name == "metaspace") {
      return Made(
          std::make_unique<MetaspaceDecoderStep>(text, fields.at("strips_first").get<bool>()));
    }
    return Made(std::make_unique<StripDecoderStep>(text, fields.at("start").get<size_t>(),
                                                   fields.at("stop").get<size_t>()));
  }
  if (name == "word_piece") {
    return Made(
        std::make_unique<WordPieceDecoderStep>(string("prefix"), fields.at("cleanup").get<bool>()));
  }
  if (name == "separate") return Made(std::make_unique<SeparateDecoderStep>());
  return Status::failed_precondition("decoder step '" + name + "' is unknown; export again");
}

}  // namespace pinfer
