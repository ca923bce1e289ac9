// Which experts a token is sent to, and with which weight; and the tokens of each expert.
#pragma once

#include <cstdint>

#include "csrc/scratch.h"

namespace pinfer {

// A token's choice of experts.
struct Assignment {
  int64_t expert;
  int64_t place;  // among all assignments in order of (expert, token)
  float weight;
};

struct Routing {
  const Assignment* assignments;  // [num_tokens, experts_per_token], by ascending expert
  const int64_t* tokens;          // [num_tokens * experts_per_token]: the token of each place
  const int64_t* first_places;    // [num_experts + 1]: of each expert's tokens
};

// Kept by the thread between calls.
class Router {
 public:
  // Softmax over the router's logits [num_tokens, num_experts], then the experts_per_token most
  // probable ones; of equals the lower expert. Their weights are the probabilities, divided by
  // their sum if `normalize`. Where a logit is NaN the weights are, and some experts are chosen.
  // The result is valid until the next call. Throws std::bad_alloc.
  Routing route(const float* logits, int64_t num_tokens, int64_t num_experts,
                int64_t experts_per_token, bool normalize);

 private:
  Scratch probabilities_, assignments_, tokens_, first_places_;
};

}  // namespace pinfer
