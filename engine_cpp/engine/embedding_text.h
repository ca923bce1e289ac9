// What stands before a text that is embedded.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bundle/manifest.h"
#include "core/status.h"

namespace pinfer {

// The text as sentence-transformers hands it to the tokenizer: behind the prompt of that name
// (none: the model's default, if it has one; "": no prompt).
// INVALID_ARGUMENT for a name that the model does not have.
Result<std::string> embedding_text(const PoolingEntry& pooling, std::string_view text,
                                   const std::optional<std::string>& prompt_name);

}  // namespace pinfer
