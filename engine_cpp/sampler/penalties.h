// Repetition, frequency and presence penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/request.h"

namespace pinfer {

// Counts tokens of one request at a time; its memory, one counter per token of the vocabulary, is
// kept between calls. Use from one thread at a time.
class Penalties {
 public:
  static bool has_penalties(const SamplingParams& params);

  // Repetition first (prompt and output, each token once: positive logits divided, negative ones
  // multiplied), then frequency and presence (output only). [vocab]
  void apply(const Request& request, std::span<float> logits);

 private:
  std::vector<int32_t> counts_;  // of the token in the output; all 0 between calls
  std::vector<int32_t> seen_ids_;
};

}  // namespace pinfer
