// Which tokens may be sampled: allowed_token_ids, none that would complete a bad word, and no end
// id before min_tokens.
#pragma once

#include <span>

#include "core/request.h"

namespace pinfer {

bool has_logit_mask(const Request& request);

// Sets the logits of tokens that must not be sampled to -inf. [vocab]
void apply_logit_mask(const Request& request, std::span<float> logits);

// Sets the logits of these ids to -inf; ids outside the vocabulary are passed over.
void mask_token_ids(std::span<const int32_t> token_ids, std::span<float> logits);

}  // namespace pinfer
