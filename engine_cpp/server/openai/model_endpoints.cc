// /v1/models, /tokenize and /detokenize, and what the endpoints share.
#include <chrono>
#include <unordered_set>

#include "server/api_error.h"
#include "server/openai/chat_prompt.h"
#include "server/openai/endpoint.h"
#include "server/random_id.h"

namespace pinfer::server {

std::string check_model(const Fields& body, const EndpointContext& context) {
  const std::optional<std::string> model = body.text("model");
  if (!model.has_value()) return context.model_names.front();
  for (const std::string& name : context.model_names) {
    if (name == *model) return name;
  }
  throw ApiError(404, "the model does not exist; this server has " + context.model_names.front(),
                 "model", "model_not_found");
}

void check_embeds(const EndpointContext& context, bool embeds) {
  if (context.embeds == embeds) return;
  throw ApiError(400,
                 context.embeds ? "the model embeds and generates no text: use /v1/embeddings"
                                : "the model generates text and does not embed: use "
                                  "/v1/chat/completions or /v1/completions",
                 "model");
}

void check_num_choices(size_t num_prompts, int32_t num_choices, const EndpointContext& context) {
  const size_t total = num_prompts * static_cast<size_t>(num_choices);
  if (context.max_queue > 0 && total > static_cast<size_t>(context.max_queue)) {
    throw ApiError(400,
                   "n: " + std::to_string(num_prompts) + " prompts with " +
                       std::to_string(num_choices) + " choices each are more than the " +
                       std::to_string(context.max_queue) + " requests that may wait (--max-queue)",
                   "n");
  }
}

Json read_body(const EndpointContext& context, const Exchange& exchange) {
  Json body = parse_body(exchange.request().body);
  if (context.log != nullptr && context.log->is_on(PINFER_LOG_DEBUG)) {
    const std::string unknown = unknown_fields(body);
    if (!unknown.empty()) {
      context.log->write(PINFER_LOG_DEBUG,
                         exchange.request().id + ": unknown fields are ignored: " + unknown);
    }
  }
  return body;
}

std::string unknown_fields(const Json& body) {
  static const std::unordered_set<std::string> known = {"add_generation_prompt",
                                                        "add_special_tokens",
                                                        "allowed_token_ids",
                                                        "audio",
                                                        "bad_words",
                                                        "best_of",
                                                        "cache_salt",
                                                        "chat_template",
                                                        "chat_template_kwargs",
                                                        "continue_final_message",
                                                        "dimensions",
                                                        "documents",
                                                        "echo",
                                                        "encoding_format",
                                                        "frequency_penalty",
                                                        "function_call",
                                                        "functions",
                                                        "guided_choice",
                                                        "guided_grammar",
                                                        "guided_json",
                                                        "guided_regex",
                                                        "ignore_eos",
                                                        "include_stop_str_in_output",
                                                        "input",
                                                        "logit_bias",
                                                        "logprobs",
                                                        "max_completion_tokens",
                                                        "max_tokens",
                                                        "messages",
                                                        "min_p",
                                                        "min_tokens",
                                                        "model",
                                                        "n",
                                                        "presence_penalty",
                                                        "priority",
                                                        "prompt",
                                                        "prompt_embeds",
                                                        "prompt_logprobs",
                                                        "prompt_name",
                                                        "repetition_penalty",
                                                        "response_format",
                                                        "return_token_strs",
                                                        "seed",
                                                        "skip_special_tokens",
                                                        "stop",
                                                        "stop_token_ids",
                                                        "stream",
                                                        "stream_options",
                                                        "structured_outputs",
                                                        "suffix",
                                                        "temperature",
                                                        "timings",
                                                        "tokens",
                                                        "tool_choice",
                                                        "tools",
                                                        "top_k",
                                                        "top_logprobs",
                                                        "top_p",
                                                        "truncate_prompt_tokens",
                                                        "user"};
  std::string names;
  for (const auto& [name, value] : body.items()) {
    if (known.count(name) > 0 || names.size() > 200) continue;
    names += (names.empty() ? "" : ", ") + name.substr(0, 40);
  }
  return names;
}

void refuse_fields(const Fields& body, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Json* value = body.find(name);
    if (value == nullptr || *value == false || *value == "") continue;
    throw ApiError(400, std::string(name) + ": is not supported", name);
  }
}

std::string new_object_id(const std::string& prefix) { return prefix + random_id(); }

int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

void handle_models(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange) {
  Json list = Json::array();
  for (const std::string& name : context.model_names) {
    list.push_back({{"id", name},
                    {"object", "model"},
                    {"created", context.created},
                    {"owned_by", "pinfer"},
                    {"root", context.model_names.front()},
                    {"parent", nullptr},
                    {"max_model_len", context.max_model_len}});
  }
  exchange->respond({.body = to_json_text({{"object", "list"}, {"data", std::move(list)}})});
}

void handle_tokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange) {
  const Json json = read_body(context, *exchange);
  const Fields body(json);
  check_model(body, context);
  std::vector<int32_t> ids;
  if (body.has("messages")) {
    const bool add_special_tokens = body.boolean("add_special_tokens").value_or(false);
    ids = context.engine->tokenize(render_chat_prompt(*context.engine, body), add_special_tokens);
  } else {
    const std::optional<std::string> prompt = body.text("prompt");
    if (!prompt.has_value()) {
      throw ApiError(400, "prompt: expected a string, or messages", "prompt");
    }
    ids = context.engine->tokenize(*prompt, body.boolean("add_special_tokens").value_or(true));
  }
  Json answer = {{"count", ids.size()}, {"max_model_len", context.max_model_len}, {"tokens", ids}};
  if (body.boolean("return_token_strs").value_or(false)) {
    Json texts = Json::array();
    for (const int32_t id : ids) texts.push_back(context.engine->token_bytes(id));
    answer["token_strs"] = std::move(texts);
  }
  exchange->respond({.body = to_json_text(answer)});
}

void handle_detokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange) {
  const Json json = read_body(context, *exchange);
  const Fields body(json);
  check_model(body, context);
  const auto ids = body.token_ids("tokens");
  if (!ids.has_value()) throw ApiError(400, "tokens: expected a list of token ids", "tokens");
  // Everything that the ids say, as in vLLM, unless asked otherwise.
  const bool skip_special_tokens = body.boolean("skip_special_tokens").value_or(false);
  try {
    const std::string text = context.engine->detokenize(*ids, skip_special_tokens);
    exchange->respond({.body = to_json_text({{"prompt", text}})});
  } catch (const Error& error) {  // "ids: 9999 is ..."
    const std::string message = error.what();
    const bool names_ids = message.starts_with("ids: ");
    throw ApiError(400, names_ids ? "tokens: " + message.substr(5) : message, "tokens");
  }
}

}  // namespace pinfer::server
