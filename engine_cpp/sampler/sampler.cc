#include "sampler/sampler.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "sampler/clamp_logit.h"
#include "sampler/exp_weight.h"
#include "sampler/greedy.h"
#include "sampler/logit_bias.h"
#include "sampler/logit_mask.h"
#include "sampler/logit_scan.h"
#include "sampler/min_p.h"
#include "sampler/random_stream.h"
#include "sampler/top_k.h"

namespace pinfer {
namespace {

bool has_processing(const Request& request) {
  const SamplingParams& params = request.sampling_params;
  return has_logit_mask(request) || !params.logit_bias.empty() || Penalties::has_penalties(params);
}

}  // namespace

Sampler::Sampler(std::vector<int32_t> masked_token_ids)
    : masked_token_ids_(std::move(masked_token_ids)) {
  std::sort(masked_token_ids_.begin(), masked_token_ids_.end());
}

SampledToken Sampler::sample(std::span<const float> logits, const Request& request) {
  SampledToken sampled{.request_id = request.request_id};
  const SamplingParams& params = request.sampling_params;
  std::optional<BestToken> best = best_token(logits);
  // Greedy without any processing needs no copy of the logits, unless a masked token is the best.
  const bool as_they_are =
      !has_processing(request) &&
      (masked_token_ids_.empty() || (params.is_greedy() && best && !is_masked(best->token_id)));
  if (best && !as_they_are) {
    logits = process(logits, request);
    best = best_token(logits);
  }
  if (!best) {
    sampled.failed = true;
  } else if (params.is_greedy()) {
    sampled.token_id = best->token_id;
  } else {
    collect_candidates(logits, best->logit, params);
    sampled.token_id = draw(request);
  }
  return sampled;
}

bool Sampler::is_masked(int32_t token_id) const {
  return std::binary_search(masked_token_ids_.begin(), masked_token_ids_.end(), token_id);
}

std::span<const float> Sampler::process(std::span<const float> logits, const Request& request) {
  processed_.assign(logits.begin(), logits.end());
  mask_token_ids(masked_token_ids_, processed_);
  apply_logit_mask(request, processed_);
  apply_logit_bias(request.sampling_params, processed_);
  if (Penalties::has_penalties(request.sampling_params)) penalties_.apply(request, processed_);
  return processed_;
}

// The tokens that may be drawn, with their weights. top_k and min_p both keep the tokens above some
// logit, so they commute; top_k goes first because it needs no weights.
void Sampler::collect_candidates(std::span<const float> logits, float max,
                                 const SamplingParams& params) {
  // Lower ones have weight 0; one more unit because this product rounds in its own way.
  float least = clamp_logit(max + (kSmallestExponent - 1.0) * params.temperature);
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size()) {
    const auto k = static_cast<size_t>(params.top_k);
    least = std::max(least, kth_greatest(logits, k, top_k_scratch_));
  }
  candidates_.resize(logits.size());
  size_t num = 0;
  for_each_at_least(logits, least, [&](size_t i) {
    candidates_.token_ids[num] = static_cast<int32_t>(i);
    candidates_.logits[num++] = logits[i];
  });
  candidates_.resize(num);
  exp_weights(candidates_.logits.data(), candidates_.size(), max, params.temperature,
              candidates_.weights.data());
  if (params.min_p > 0.0) apply_min_p(params.min_p, candidates_);
  if (params.top_p < 1.0) apply_top_p(params.top_p, candidates_, top_p_scratch_);
}

int32_t Sampler::draw(const Request& request) const {
  const std::vector<int64_t>& weights = candidates_.weights;
  const auto total =
      static_cast<uint64_t>(std::accumulate(weights.begin(), weights.end(), int64_t{0}));
  const uint64_t bits = random_bits(request.seed, static_cast<uint32_t>(request.choice_index),
                                    static_cast<uint32_t>(request.num_output_tokens()));
  // floor(bits / 2^64 * total): below total, so that some token is reached.
  const auto target = static_cast<int64_t>((static_cast<unsigned __int128>(bits) * total) >> 64);
  int64_t sum = 0;
  size_t i = 0;
  while ((sum += weights[i]) <= target) ++i;
  return candidates_.token_ids[i];
}

}  // namespace pinfer
