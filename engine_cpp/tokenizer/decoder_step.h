// The steps of a decoder: each changes the texts of single tokens.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/status.h"
#include "tokenizer/text_step.h"

namespace pinfer {

// One step. Immutable and thread-safe.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Changes one token's text. `is_first` says whether the text of all tokens begins with it.
  virtual void apply(bool is_first, std::string* text) const = 0;
};

// {"step": "replace" | "strip" | "metaspace" | "word_piece" | "separate", ...}.
Result<std::unique_ptr<const DecoderStep>> make_decoder_step(const nlohmann::json& fields,
                                                             const TextStepContext& context);

}  // namespace pinfer
