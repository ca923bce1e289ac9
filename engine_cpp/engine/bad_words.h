// Words that a request forbids, as the id sequences that spell them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "tokenizer/tokenizer.h"

namespace pinfer {

// As in vLLM: each word as it begins a text, and, where that is as many ids, as it follows a space.
// INVALID_ARGUMENT naming the word that is empty or not UTF-8.
Result<std::vector<std::vector<int32_t>>> bad_words_token_ids(
    const Tokenizer& tokenizer, const std::vector<std::string>& bad_words);

}  // namespace pinfer
