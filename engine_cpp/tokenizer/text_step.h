// The steps that change or split text before the model sees it. The exporter turns the normalizers
// and pre-tokenizers of tokenizer.json into sequences of these few (export/tokenizer_steps.py).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/status.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/text_piece.h"
#include "tokenizer/tokenizer_file.h"

namespace pinfer {

// One step. Immutable and thread-safe.
class TextStep {
 public:
  virtual ~TextStep() = default;
  // Appends what becomes of `piece` to `out`; may append empty pieces.
  virtual Status apply(const TextPiece& piece, TextArena* arena,
                       std::vector<TextPiece>* out) const = 0;
};

// What steps are made from; everything must outlive them.
struct TextStepContext {
  const TokenizerFile* file = nullptr;
  const CharClasses* classes = nullptr;
  std::vector<std::string> library_directories;  // where Oniguruma is looked for first
};

// A sequence of steps; each sees the pieces that the one before it left. Empty pieces are dropped.
class TextSteps {
 public:
  // `steps` is an array of {"step": name, ...}. Errors name the step. May throw nlohmann's
  // exceptions where a field is missing or of the wrong type.
  static Result<TextSteps> parse(const nlohmann::json& steps, const TextStepContext& context);

  bool empty() const { return steps_.empty(); }
  // Appends the pieces that `piece` becomes to `out`.
  Status apply(const TextPiece& piece, TextArena* arena, std::vector<TextPiece>* out) const;

 private:
  std::vector<std::unique_ptr<const TextStep>> steps_;
};

// The makers of the single steps, by file.
Result<std::unique_ptr<const TextStep>> make_split_step(const nlohmann::json& fields,
                                                        const TextStepContext& context);
Result<std::unique_ptr<const TextStep>> make_replace_step(const nlohmann::json& fields,
                                                          const TextStepContext& context);
Result<std::unique_ptr<const TextStep>> make_unicode_step(const nlohmann::json& fields,
                                                          const TextStepContext& context);
Result<std::unique_ptr<const TextStep>> make_char_map_step(const nlohmann::json& fields,
                                                           const TextStepContext& context);
Result<std::unique_ptr<const TextStep>> make_precompiled_step(const nlohmann::json& fields,
                                                              const TextStepContext& context);
Result<std::unique_ptr<const TextStep>> make_prepend_step(const nlohmann::json& fields);
Result<std::unique_ptr<const TextStep>> make_strip_step(const nlohmann::json& fields,
                                                        const TextStepContext& context);
std::unique_ptr<const TextStep> make_byte_map_step();

}  // namespace pinfer
