#include "core/request.h"

#include <algorithm>
#include <random>
#include <utility>

namespace pinfer {
namespace {

uint64_t draw_seed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::optional<int32_t> first_of(const std::vector<int32_t>& token_ids) {
  if (token_ids.empty()) return std::nullopt;
  return token_ids.front();
}

std::vector<int32_t> all_but_first_of(const std::vector<int32_t>& token_ids) {
  if (token_ids.empty()) return {};
  std::vector<int32_t> rest(token_ids.begin() + 1, token_ids.end());
  std::erase(rest, token_ids.front());
  return rest;
}

bool contains(const std::vector<int32_t>& token_ids, int32_t token_id) {
  return std::find(token_ids.begin(), token_ids.end(), token_id) != token_ids.end();
}

}  // namespace

bool is_finished(RequestStatus status) { return status >= RequestStatus::FINISHED_STOPPED; }

std::string_view finish_reason(RequestStatus status) {
  switch (status) {
    case RequestStatus::FINISHED_STOPPED:
      return "stop";
    case RequestStatus::FINISHED_LENGTH:
      return "length";
    case RequestStatus::FINISHED_ABORTED:
      return "abort";
    case RequestStatus::FINISHED_ERROR:
      return "error";
    default:
      return "";
  }
}

Request::Request(std::string request_id_in, std::vector<int32_t> prompt_token_ids,
                 SamplingParams sampling_params_in, RequestOptions options)
    : request_id(std::move(request_id_in)),
      sampling_params(std::move(sampling_params_in)),
      eos_token_id(first_of(options.eos_token_ids)),
      extra_eos_token_ids(all_but_first_of(options.eos_token_ids)),
      priority(options.priority),
      arrival_time(options.arrival_time),
      cache_salt(std::move(options.cache_salt)),
      choice_index(options.choice_index),
      pooling(options.pooling),
      seed(sampling_params.seed ? static_cast<uint64_t>(*sampling_params.seed) : draw_seed()),
      num_prompt_tokens(static_cast<int32_t>(prompt_token_ids.size())),
      all_token_ids_(std::move(prompt_token_ids)) {}

bool Request::is_stop_token_id(int32_t token_id) const {
  if (contains(sampling_params.stop_token_ids, token_id)) return true;
  return !sampling_params.ignore_eos && contains(extra_eos_token_ids, token_id);
}

}  // namespace pinfer
