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

// A word is completed by its last token where the output ends with the others.
void mask_bad_words(const Request& request, std::span<float> logits) {
  const std::span<const int32_t> output = request.output_token_ids();
  for (const std::vector<int32_t>& word : request.sampling_params.bad_words_token_ids) {
    const size_t before = word.size() - 1;
    if (before <= output.size() &&
        std::equal(word.begin(), word.end() - 1, output.end() - static_cast<int64_t>(before))) {
      mask_token_ids(std::span(&word.back(), 1), logits);
    }
  }
}

}  // namespace

bool has_logit_mask(const Request& request) {
  const SamplingParams& params = request.sampling_params;
  return !params.allowed_token_ids.empty() || !params.bad_words_token_ids.empty() ||
         is_too_short(request);
}

void apply_logit_mask(const Request& request, std::span<float> logits) {
  const SamplingParams& params = request.sampling_params;
  if (!params.allowed_token_ids.empty()) keep_only(params.allowed_token_ids, logits);
  mask_bad_words(request, logits);
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
