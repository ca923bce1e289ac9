// What a Tokenizer is made of. Internal to the tokenizer folder.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/decoder.h"
#include "tokenizer/text_step.h"
#include "tokenizer/token_model.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/vocabulary.h"

namespace pinfer {

// Later members borrow from earlier ones, so the struct stays where it was made.
struct TokenizerParts {
  std::unique_ptr<const TokenizerFile> file;
  Vocabulary vocabulary;
  CharClasses classes;
  std::optional<AddedTokens> added_tokens;             // looked for in the text as it is
  std::optional<AddedTokens> normalized_added_tokens;  // looked for after the normalizer
  TextSteps normalizer;
  TextSteps pre_tokenizer;
  std::unique_ptr<const TokenModel> model;
  std::unique_ptr<const Decoder> decoder;
  std::vector<int32_t> prefix_ids;  // what add_special_tokens puts before a text, and after it
  std::vector<int32_t> suffix_ids;
};

struct TokenizerOptions;

Result<std::unique_ptr<const TokenizerParts>> read_tokenizer_parts(
    std::unique_ptr<const TokenizerFile> file, const TokenizerOptions& options);

}  // namespace pinfer
