#include "server/openai/sampling_fields.h"

#include <charconv>
#include <limits>

#include "server/api_error.h"

namespace pinfer::server {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();
constexpr double kAnyNumber = 1e300;

void refuse_zero_bytes(const std::string& text, const std::string& path) {
  if (text.find('\0') != std::string::npos) {
    throw ApiError(400, path + ": expected text without zero characters", path);
  }
}

std::vector<std::string> read_stop(const Fields& body) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return {};
  std::vector<std::string> texts;
  if (stop->is_string()) {
    texts.push_back(stop->get<std::string>());
  } else if (stop->is_array()) {
    texts = *body.texts("stop");
  } else {
    refuse_value("stop", "a string or a list of strings", *stop);
  }
  if (texts.size() > kMaxStopStrings) {
    throw ApiError(400,
                   "stop: expected at most " + std::to_string(kMaxStopStrings) +
                       " strings, found " + std::to_string(texts.size()),
                   "stop");
  }
  for (const std::string& text : texts) {
    if (text.empty() || text.size() > kMaxStopBytes) {
      throw ApiError(400,
                     "stop: expected strings of 1 to " + std::to_string(kMaxStopBytes) +
                         " bytes, found one of " + std::to_string(text.size()),
                     "stop");
    }
    refuse_zero_bytes(text, "stop");
  }
  return texts;
}

std::vector<std::pair<int32_t, double>> read_logit_bias(const Fields& body) {
  std::vector<std::pair<int32_t, double>> biases;
  const Json* object = body.find("logit_bias");
  if (object == nullptr) return biases;
  if (!object->is_object()) refuse_value("logit_bias", "an object of ids to numbers", *object);
  for (const auto& [key, value] : object->items()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::string path = "logit_bias[" + (key.size() > 12 ? "..." : key) + "]";
    // As numbers are written, so that no two keys are one id.
    if (error != std::errc() || end != key.data() + key.size() || std::to_string(id) != key) {
      throw ApiError(400, path + ": expected a token id as key", "logit_bias");
    }
    if (!value.is_number()) refuse_value(path, "a number from -100 to 100", value);
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) refuse_value(path, "a number from -100 to 100", value);
    biases.emplace_back(id, bias);
  }
  return biases;
}

}  // namespace

SamplingParams read_sampling_params(const Fields& body, SamplingParams params) {
  const auto integer = [&](const char* name, int64_t low, int32_t default_value) {
    return static_cast<int32_t>(body.integer(name, low, kMaxInt).value_or(default_value));
  };
  params.temperature = body.number("temperature", 0, kAnyNumber).value_or(params.temperature);
  params.top_p = body.number("top_p", 0, 1).value_or(params.top_p);
  params.top_k = integer("top_k", -1, params.top_k);
  params.min_p = body.number("min_p", 0, 1).value_or(params.min_p);
  params.presence_penalty =
      body.number("presence_penalty", -2, 2).value_or(params.presence_penalty);
  params.frequency_penalty =
      body.number("frequency_penalty", -2, 2).value_or(params.frequency_penalty);
  params.repetition_penalty =
      body.number("repetition_penalty", 0, kAnyNumber).value_or(params.repetition_penalty);
  params.min_tokens = integer("min_tokens", 0, params.min_tokens);
  const auto seed = body.integer("seed", INT64_MIN, INT64_MAX);
  params.has_seed = seed.has_value();
  params.seed = seed.value_or(0);
  params.ignore_eos = body.boolean("ignore_eos").value_or(false);
  params.skip_special_tokens = body.boolean("skip_special_tokens").value_or(true);
  params.include_stop_str_in_output = body.boolean("include_stop_str_in_output").value_or(false);
  params.stop_strings = read_stop(body);
  params.stop_tokens = body.token_ids("stop_token_ids").value_or(std::vector<int32_t>());
  params.logit_biases = read_logit_bias(body);
  if (body.has("allowed_token_ids")) {
    params.allowed_tokens = *body.token_ids("allowed_token_ids");
    if (params.allowed_tokens.empty()) {
      throw ApiError(400, "allowed_token_ids: expected at least one id", "allowed_token_ids");
    }
  }
  params.bad_word_strings = body.texts("bad_words").value_or(std::vector<std::string>());
  for (const std::string& word : params.bad_word_strings) refuse_zero_bytes(word, "bad_words");
  return params;
}

AnswerOptions read_answer_options(const Fields& body) {
  AnswerOptions options;
  options.num_choices = static_cast<int32_t>(body.integer("n", 1, kMaxChoices).value_or(1));
  options.stream = body.boolean("stream").value_or(false);
  if (const Json* stream_options = body.find("stream_options")) {
    if (!options.stream) {
      throw ApiError(400, "stream_options: only with stream", "stream_options");
    }
    if (!stream_options->is_object()) refuse_value("stream_options", "an object", *stream_options);
    options.include_usage =
        Fields(*stream_options, "stream_options.").boolean("include_usage").value_or(false);
  }
  options.timings = body.boolean("timings").value_or(false);
  options.priority =
      static_cast<int32_t>(body.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
  options.cache_salt = body.text("cache_salt").value_or("");
  refuse_zero_bytes(options.cache_salt, "cache_salt");
  (void)body.text("user");
  return options;
}

void truncate_prompt(const Fields& body, int32_t max_model_len, std::vector<int32_t>* prompt) {
  const auto given = body.integer("truncate_prompt_tokens", -1, kMaxInt);
  if (!given.has_value()) return;
  if (*given == 0) {
    throw ApiError(400, "truncate_prompt_tokens: expected -1 or at least 1, found 0",
                   "truncate_prompt_tokens");
  }
  const auto kept = static_cast<size_t>(*given < 0 ? max_model_len - 1 : *given);
  if (prompt->size() > kept) {
    prompt->erase(prompt->begin(), prompt->end() - static_cast<int64_t>(kept));
  }
}

}  // namespace pinfer::server
