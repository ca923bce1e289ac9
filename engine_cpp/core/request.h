// A request as the scheduler, the cache manager and the sampler know it: token ids and numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/pooling_params.h"
#include "core/sampling_params.h"
#include "core/sha256.h"

namespace pinfer {

enum class RequestStatus {
  WAITING,    // never ran
  RUNNING,    // holds cache blocks
  PREEMPTED,  // ran, lost its blocks, will be computed again
  FINISHED_STOPPED,
  FINISHED_LENGTH,
  FINISHED_ABORTED,
  FINISHED_ERROR,
};

bool is_finished(RequestStatus status);

// "stop", "length", "abort" or "error"; "" for a status that is not finished.
std::string_view finish_reason(RequestStatus status);

// What a request may say beside its prompt and its sampling parameters.
struct RequestOptions {
  // The model's end ids. The first is the end-of-text id; further ones act as stop ids (and are
  // reported as the stop reason), unless sampling_params.ignore_eos.
  std::vector<int32_t> eos_token_ids = {};
  int32_t priority = 0;         // smaller is served earlier; only under the priority policy
  double arrival_time = 0.0;    // seconds on any one clock; breaks ties of priority
  std::string cache_salt = {};  // requests share cached blocks only with requests of the same salt
  int32_t choice_index = 0;     // which of n choices: each has its own random stream
  // The request is for its prompt's embedding: it ends when that is computed, without a token.
  std::optional<PoolingParams> pooling = {};
};

// Owned by the scheduler and touched only by the thread that drives it. Not copied: the scheduler
// hands out pointers, valid until the request has finished.
class Request {
 public:
  // REQUIRES: a prompt of at least one token.
  Request(std::string request_id, std::vector<int32_t> prompt_token_ids,
          SamplingParams sampling_params, RequestOptions options = {});
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  const std::string request_id;
  const SamplingParams sampling_params;
  const std::optional<int32_t> eos_token_id;
  const std::vector<int32_t> extra_eos_token_ids;  // end ids after the first
  const int32_t priority;
  const double arrival_time;
  const std::string cache_salt;
  const int32_t choice_index;
  const std::optional<PoolingParams> pooling;
  const uint64_t seed;  // of the random stream: the parameters' one, else drawn at construction
  const int32_t num_prompt_tokens;

  int32_t num_tokens() const { return static_cast<int32_t>(all_token_ids_.size()); }
  int32_t num_tokens_with_placeholders() const { return num_tokens() + num_output_placeholders; }
  int32_t num_output_tokens() const { return num_tokens() - num_prompt_tokens; }
  std::span<const int32_t> all_token_ids() const { return all_token_ids_; }
  std::span<const int32_t> prompt_token_ids() const {
    return all_token_ids().first(static_cast<size_t>(num_prompt_tokens));
  }
  std::span<const int32_t> output_token_ids() const {
    return all_token_ids().subspan(static_cast<size_t>(num_prompt_tokens));
  }
  void append_output_token_id(int32_t token_id) { all_token_ids_.push_back(token_id); }

  // True if sampling token_id ends the request as a stop id: one of the parameters, or a further
  // end id of the model.
  bool is_stop_token_id(int32_t token_id) const;

  // Log-probabilities of the prompt, and means, need what all of its tokens give; cached blocks do
  // not have that.
  bool skips_prefix_cache() const {
    return sampling_params.prompt_logprobs.has_value() ||
           (pooling.has_value() && pooling->mode == PoolingMode::MEAN);
  }

  bool finished() const { return is_finished(status); }

  // Set by the scheduler.
  RequestStatus status = RequestStatus::WAITING;
  std::optional<int32_t> stop_reason;   // the stop id that ended it; none for the end-of-text id
  int32_t num_computed_tokens = 0;      // tokens whose KV exists or is being written
  int32_t num_output_placeholders = 0;  // tokens being sampled: scheduled before they are known
  int32_t num_cached_tokens = -1;       // prefix-cache hit of the first admission; -1 before
  int32_t num_preemptions = 0;
  int32_t num_prompt_logprobs = 0;  // of the prompt's tokens after the first: passed on so far

  // Set by the KV cache manager.
  // A table for each group of layers; position p lives in block_ids[group][p / block_size]. The
  // tables are equally long, and empty (or none at all) while the request holds no blocks.
  std::vector<std::vector<int32_t>> block_ids;
  std::vector<Sha256Digest> block_hashes;  // keys of full blocks, as far as they were needed
  int32_t num_registered_blocks = 0;       // leading blocks that have been given their key

 private:
  std::vector<int32_t> all_token_ids_;  // prompt, then output
};

}  // namespace pinfer
