// Chooses the next token of a request from its logits.
//
// The order is vLLM V1's: allowed_token_ids, bad words, min_tokens, logit_bias, penalties; the best
// token if greedy (equal ones: the lowest id); else temperature, min_p, top_k, top_p, one draw. The
// draw is the inverse of the cumulated weights in ascending order of id, at random_bits(seed,
// choice index, output position). Weights are integers, so that this class and its Python twin give
// the same ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/model_runner_output.h"
#include "core/request.h"
#include "sampler/candidates.h"
#include "sampler/penalties.h"
#include "sampler/top_p.h"

namespace pinfer {

// Depends only on what it is given: the same request and logits give the same token at any time. It
// keeps memory between calls; use it from one thread at a time.
class Sampler {
 public:
  // masked_token_ids: ids without a token (padded vocabulary); they are never sampled.
  explicit Sampler(std::vector<int32_t> masked_token_ids = {});

  // logits: [vocab], left as they are. failed if any is NaN or +inf, or if no token is left.
  SampledToken sample(std::span<const float> logits, const Request& request);

  // Sorted.
  std::span<const int32_t> masked_token_ids() const { return masked_token_ids_; }

 private:
  bool is_masked(int32_t token_id) const;
  std::span<const float> process(std::span<const float> logits, const Request& request);
  void collect_candidates(std::span<const float> logits, float max, const SamplingParams& params);
  int32_t draw(const Request& request) const;

  std::vector<int32_t> masked_token_ids_;
  std::vector<float> processed_;  // [vocab]
  Penalties penalties_;
  Candidates candidates_;
  std::vector<float> top_k_scratch_;
  TopPScratch top_p_scratch_;
};

}  // namespace pinfer
