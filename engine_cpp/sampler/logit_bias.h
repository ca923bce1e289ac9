// Adds SamplingParams.logit_bias.
#pragma once

#include <span>

#include "core/sampling_params.h"

namespace pinfer {

// logits[id] += bias, [vocab]; ids outside the vocabulary are passed over.
void apply_logit_bias(const SamplingParams& params, std::span<float> logits);

}  // namespace pinfer
