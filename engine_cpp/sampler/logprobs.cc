#include "sampler/logprobs.h"

#include <algorithm>
#include <cmath>

#include "sampler/exp_weight.h"
#include "sampler/greedy.h"
#include "sampler/logit_scan.h"
#include "sampler/top_k.h"

namespace pinfer {
namespace {

// The k best ids, best first.
std::vector<int32_t> best_token_ids(std::span<const float> logits, size_t k,
                                    std::span<const int32_t> masked_token_ids) {
  // Masked ids may be among the best, so that many more are looked at.
  const size_t num_wanted = std::min(k + masked_token_ids.size(), logits.size());
  if (k == 0) return {};
  std::vector<float> scratch;
  const float least = kth_greatest(logits, num_wanted, scratch);
  std::vector<int32_t> ids;
  for_each_at_least(logits, least, [&](size_t i) {
    const auto id = static_cast<int32_t>(i);
    if (!std::binary_search(masked_token_ids.begin(), masked_token_ids.end(), id)) {
      ids.push_back(id);
    }
  });
  const auto is_before = [&](int32_t a, int32_t b) {
    const float logit_a = logits[static_cast<size_t>(a)];
    const float logit_b = logits[static_cast<size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  };
  const auto end = ids.begin() + static_cast<std::ptrdiff_t>(std::min(k, ids.size()));
  std::partial_sort(ids.begin(), end, ids.end(), is_before);
  ids.erase(end, ids.end());
  return ids;
}

}  // namespace

std::optional<TokenLogprobs> log_softmax_top(std::span<const float> logits, int32_t k,
                                             int32_t chosen,
                                             std::span<const int32_t> masked_token_ids) {
  const std::optional<BestToken> best = best_token(logits);
  if (!best) return std::nullopt;
  const double max = best->logit;
  const double log_sum = std::log(exp_sum(logits.data(), logits.size(), best->logit));
  const auto logprob = [&](int32_t id) {
    return (static_cast<double>(logits[static_cast<size_t>(id)]) - max) - log_sum;
  };
  TokenLogprobs result{.chosen = logprob(chosen), .top = {}};
  const auto num_top = static_cast<size_t>(std::max(k, 0));
  for (const int32_t id : best_token_ids(logits, num_top, masked_token_ids)) {
    result.top.emplace_back(id, logprob(id));
  }
  return result;
}

}  // namespace pinfer
