// The tokens that are still in the running, as parallel arrays in ascending order of id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinfer {

struct Candidates {
  std::vector<int32_t> token_ids;
  std::vector<float> logits;
  std::vector<int64_t> weights;  // unnormalised probabilities; see exp_weight.h

  size_t size() const { return token_ids.size(); }

  void resize(size_t num) {
    token_ids.resize(num);
    logits.resize(num);
    weights.resize(num);
  }

  // Keeps those for which keep(index) is true.
  template <typename Predicate>
  void keep_if(Predicate keep) {
    size_t num_kept = 0;
    for (size_t i = 0; i < token_ids.size(); ++i) {
      if (!keep(i)) continue;
      token_ids[num_kept] = token_ids[i];
      logits[num_kept] = logits[i];
      weights[num_kept] = weights[i];
      ++num_kept;
    }
    resize(num_kept);
  }
};

}  // namespace pinfer
