#include "sampler/penalties.h"

#include "sampler/clamp_logit.h"

namespace pinfer {
namespace {

// Marks a token of the prompt that the output does not hold.
constexpr int32_t kInPromptOnly = -1;

}  // namespace

bool Penalties::has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0 || params.frequency_penalty != 0.0 ||
         params.presence_penalty != 0.0;
}

void Penalties::apply(const Request& request, std::span<float> logits) {
  const SamplingParams& params = request.sampling_params;
  counts_.resize(logits.size(), 0);
  for (const int32_t id : request.output_token_ids()) {
    const auto index = static_cast<size_t>(id);
    if (index < logits.size() && counts_[index]++ == 0) seen_ids_.push_back(id);
  }
  for (const int32_t id : request.prompt_token_ids()) {
    const auto index = static_cast<size_t>(id);
    if (index >= logits.size() || counts_[index] != 0) continue;
    counts_[index] = kInPromptOnly;
    seen_ids_.push_back(id);
  }
  for (const int32_t id : seen_ids_) {
    const auto index = static_cast<size_t>(id);
    double logit = logits[index];
    logit = logit > 0.0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (counts_[index] > 0) {
      logit -= params.frequency_penalty * counts_[index];
      logit -= params.presence_penalty;
    }
    logits[index] = clamp_logit(logit);
    counts_[index] = 0;
  }
  seen_ids_.clear();
}

}  // namespace pinfer
