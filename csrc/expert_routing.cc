#include "csrc/expert_routing.h"

#include <algorithm>

#include "csrc/kernels/kernels.h"
#include "csrc/threads/thread_pool.h"

namespace pinfer {

namespace {

// Probabilities to look at below which a fork-join is not worth while.
constexpr int64_t kSerialChoices = 8 * 1024;

constexpr float kTaken = -1.0f;  // below every probability

// The most probable expert that is not taken yet. Comparisons with NaN are false: among NaN alone
// it is the first one.
int64_t best_expert(const float* probabilities, int64_t num_experts) {
  int64_t best = -1;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (probabilities[e] < 0) continue;
    if (best < 0 || probabilities[e] > probabilities[best]) best = e;
  }
  return best;
}

// The choices [experts_per_token] of one token. Its probabilities are used up.
void choose_experts(float* probabilities, int64_t num_experts, int64_t experts_per_token,
                    bool normalize, Assignment* choices) {
  float sum = 0;
  for (int64_t i = 0; i < experts_per_token; ++i) {
    const int64_t expert = best_expert(probabilities, num_experts);
    choices[i] = {expert, 0, probabilities[expert]};
    sum += probabilities[expert];
    probabilities[expert] = kTaken;
  }
  if (normalize) {
    for (int64_t i = 0; i < experts_per_token; ++i) choices[i].weight /= sum;
  }
  std::sort(choices, choices + experts_per_token,
            [](const Assignment& a, const Assignment& b) { return a.expert < b.expert; });
}

}  // namespace

Routing Router::route(const float* logits, int64_t num_tokens, int64_t num_experts,
                      int64_t experts_per_token, bool normalize) {
  const int64_t total = num_tokens * experts_per_token;
  auto* probabilities = probabilities_.reserve_array<float>(num_tokens * num_experts);
  auto* assignments = assignments_.reserve_array<Assignment>(total);
  auto* tokens = tokens_.reserve_array<int64_t>(total);
  auto* first_places = first_places_.reserve_array<int64_t>(num_experts + 1);

  const MoeKernel& kernel = *kernels().moe;
  const int64_t grain =
      std::max<int64_t>(1, kSerialChoices / (num_experts * (experts_per_token + 4)));
  parallel_for(num_tokens, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* row = probabilities + token * num_experts;
      kernel.softmax(logits + token * num_experts, num_experts, row);
      choose_experts(row, num_experts, experts_per_token, normalize,
                     assignments + token * experts_per_token);
    }
  });

  // A counting sort: first_places[e + 1] counts the tokens of e, becomes the next place of e, and
  // ends as the first place of e + 1.
  std::fill(first_places, first_places + num_experts + 1, 0);
  for (int64_t i = 0; i < total; ++i) {
    if (assignments[i].expert + 2 <= num_experts) ++first_places[assignments[i].expert + 2];
  }
  for (int64_t e = 1; e <= num_experts; ++e) first_places[e] += first_places[e - 1];
  for (int64_t i = 0; i < total; ++i) {
    assignments[i].place = first_places[assignments[i].expert + 1]++;
    tokens[assignments[i].place] = i / experts_per_token;
  }
  return {assignments, tokens, first_places};
}

}  // namespace pinfer
