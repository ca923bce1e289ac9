#include "core/sampling_params.h"

#include <cmath>
#include <limits>

#include "core/field_check.h"

namespace pinfer {
namespace {

constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

std::string entry(const char* field, int32_t token_id) {
  return std::string(field) + "[" + std::to_string(token_id) + "]";
}

Status check_token_ids(const char* field, const std::vector<int32_t>& token_ids) {
  for (const int32_t token_id : token_ids) {
    if (token_id < 0) return field_error(field, "a list of ids >= 0", token_id);
  }
  return Status::ok_status();
}

Status check_filters(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0.0) {
    return field_error("temperature", "a finite number >= 0", params.temperature);
  }
  if (!(params.top_p > 0.0 && params.top_p <= 1.0)) {
    return field_error("top_p", "in (0, 1]", params.top_p);
  }
  PINFER_RETURN_IF_ERROR(check_range("top_k", params.top_k, -1, kMaxInt));
  return check_range("min_p", params.min_p, 0.0, 1.0);
}

Status check_penalties(const SamplingParams& params) {
  PINFER_RETURN_IF_ERROR(check_range("presence_penalty", params.presence_penalty, -2.0, 2.0));
  PINFER_RETURN_IF_ERROR(check_range("frequency_penalty", params.frequency_penalty, -2.0, 2.0));
  if (!std::isfinite(params.repetition_penalty) || params.repetition_penalty <= 0.0) {
    return field_error("repetition_penalty", "a finite number > 0", params.repetition_penalty);
  }
  for (const auto& [token_id, bias] : params.logit_bias) {
    if (token_id < 0) return field_error("logit_bias", "a map from ids >= 0", token_id);
    PINFER_RETURN_IF_ERROR(check_range(entry("logit_bias", token_id), bias, -100.0, 100.0));
  }
  for (const std::vector<int32_t>& word : params.bad_words_token_ids) {
    if (word.empty()) return field_error("bad_words_token_ids", "lists that are not empty", "[]");
    PINFER_RETURN_IF_ERROR(check_token_ids("bad_words_token_ids", word));
  }
  return check_token_ids("allowed_token_ids", params.allowed_token_ids);
}

Status check_end_rules(const SamplingParams& params) {
  PINFER_RETURN_IF_ERROR(check_range("max_tokens", params.max_tokens, 1, kMaxInt));
  PINFER_RETURN_IF_ERROR(check_range("min_tokens", params.min_tokens, 0, params.max_tokens));
  PINFER_RETURN_IF_ERROR(check_token_ids("stop_token_ids", params.stop_token_ids));
  for (const std::string& text : params.stop) {
    if (text.empty()) return field_error("stop", "a list of non-empty strings", "\"\"");
  }
  PINFER_RETURN_IF_ERROR(check_range("logprobs", params.logprobs.value_or(0), 0, kMaxInt));
  return check_range("prompt_logprobs", params.prompt_logprobs.value_or(0), 0, kMaxInt);
}

}  // namespace

Status SamplingParams::validate() const {
  PINFER_RETURN_IF_ERROR(check_filters(*this));
  PINFER_RETURN_IF_ERROR(check_penalties(*this));
  return check_end_rules(*this);
}

Status SamplingParams::validate_token_ids(int32_t vocab_size) const {
  const std::string range = "a token id below " + std::to_string(vocab_size);
  for (const auto& [token_id, bias] : logit_bias) {
    if (token_id < 0 || token_id >= vocab_size) return field_error("logit_bias", range, token_id);
  }
  for (const int32_t token_id : allowed_token_ids) {
    if (token_id < 0 || token_id >= vocab_size) {
      return field_error("allowed_token_ids", range, token_id);
    }
  }
  return Status::ok_status();
}

}  // namespace pinfer
