#include "sampler/logit_mask.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace pinfer {
namespace {

bool is_too_short(const Request& request) {
  return request.num_output_tokens() < request.sampling_params.min_tokens;
}

void keep_only(std::span<const int32_t> token_ids, std::span<float> logits) {
  std::vector<std::pair<size_t, float>> kept;
  for (const int32_t id : token_ids) {
    const auto index = static_cast<size_t>(id);
    if (index < logits.size()) kept.emplace_back(index, logits[index]);
  }
  std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
  for (const auto& [index, logit] : kept) logits[index] = logit;
}

}  // namespace

bool has_logit_mask(const Request& request) {
  return !request.sampling_params.allowed_token_ids.empty() || is_too_short(request);
}

void apply_logit_mask(const Request& request, std::span<float> logits) {
  const SamplingParams& params = request.sampling_params;
  if (!params.allowed_token_ids.empty()) keep_only(params.allowed_token_ids, logits);
  if (!is_too_short(request)) return;
  if (request.eos_token_id) mask_token_ids(std::span(&*request.eos_token_id, 1), logits);
  mask_token_ids(request.extra_eos_token_ids, logits);
  mask_token_ids(params.stop_token_ids, logits);
}

void mask_token_ids(std::span<const int32_t> token_ids, std::span<float> logits) {
  for (const int32_t id : token_ids) {
    const auto index = static_cast<size_t>(id);
    if (index < logits.size()) logits[index] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace pinfer
