// What the scheduler decided for one step: plain values, the only thing that the executor is told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model_runner_output.h"

namespace pinfer {

// Stands for a token that the step before samples, and that was not known when this one was
// scheduled.
inline constexpr int32_t kPlaceholderTokenId = -1;

enum class ScheduledKind { NEW, RESUMED, RUNNING };

struct ScheduledRequest {
  std::string request_id;
  ScheduledKind kind = ScheduledKind::NEW;
  int32_t num_computed_tokens = 0;  // before this step; for NEW and RESUMED the prefix-cache hit
  std::vector<int32_t> token_ids;   // the tokens to compute, at positions num_computed_tokens ...
  // By group of layers. RUNNING: blocks added; NEW and RESUMED: the whole table.
  std::vector<std::vector<int32_t>> new_block_ids;
  bool samples = false;  // this chunk reaches the last known token: one token is sampled

  int32_t num_scheduled_tokens() const { return static_cast<int32_t>(token_ids.size()); }
};

struct SchedulerOutput {
  std::vector<ScheduledRequest> scheduled_requests;  // in schedule order
  std::vector<std::string> preempted_request_ids;    // their block tables are void
  std::vector<std::string> finished_request_ids;     // ended since the last step: forget them
  int32_t total_num_scheduled_tokens = 0;

  // The step's tokens lie flat, request after request. Of those that sample: the last token's row.
  std::vector<int32_t> sampled_rows() const {
    std::vector<int32_t> rows;
    int32_t end = 0;
    for (const ScheduledRequest& request : scheduled_requests) {
      end += request.num_scheduled_tokens();
      if (request.samples) rows.push_back(end - 1);
    }
    return rows;
  }

  // Puts the tokens of the step before in place of the placeholders. One that failed ends its
  // request: what is computed for it is thrown away, with any id.
  void put_sampled_tokens(std::span<const SampledToken> sampled) {
    auto token = sampled.begin();  // in the order of the requests that go on
    for (ScheduledRequest& request : scheduled_requests) {
      if (request.token_ids.back() != kPlaceholderTokenId) continue;
      token = std::find_if(token, sampled.end(), [&](const SampledToken& candidate) {
        return candidate.request_id == request.request_id;
      });
      const bool has_token = token != sampled.end() && !token->failed;
      request.token_ids.back() = has_token ? std::max(token->token_id, 0) : 0;
    }
  }
};

}  // namespace pinfer
