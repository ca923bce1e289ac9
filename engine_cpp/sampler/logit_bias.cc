#include "sampler/logit_bias.h"

#include "sampler/clamp_logit.h"

namespace pinfer {

void apply_logit_bias(const SamplingParams& params, std::span<float> logits) {
  for (const auto& [id, bias] : params.logit_bias) {
    const auto index = static_cast<size_t>(id);
    if (index < logits.size()) logits[index] = clamp_logit(logits[index] + bias);
  }
}

}  // namespace pinfer
