// Hidden states to embeddings. A request's tokens may come over several steps: what has been added
// is kept until then.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/model_runner_output.h"
#include "core/pooling_params.h"
#include "executor/executor.h"

namespace pinfer {

// Not thread-safe: the engine thread owns it.
class Pooler {
 public:
  // Adds rows, one for each token, in the order of the tokens: sums do not depend on how the tokens
  // are spread over steps.
  void add(const std::string& request_id, const HiddenStates& rows);

  // The embedding of what was added, which is forgotten. Failed if a number is not finite, or
  // nothing was added.
  Embedding take(const std::string& request_id, const PoolingParams& params);

  // Requests that ended, or begin again.
  void forget(std::span<const std::string> request_ids);

 private:
  struct Sum {
    std::vector<double> values;  // [hidden]
    int64_t num_tokens = 0;
  };

  std::unordered_map<std::string, Sum> sums_;  // by request id
};

}  // namespace pinfer
