// /v1/models, /tokenize and /detokenize, and what the endpoints share.
#include <chrono>
#include <cstdio>
#include <random>

#include "server/api_error.h"
#include "server/openai/chat_prompt.h"
#include "server/openai/endpoint.h"

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

std::string new_object_id(const std::string& prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return prefix + text;
}

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
  const Json json = parse_body(exchange->request().body);
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
  const Json json = parse_body(exchange->request().body);
  const Fields body(json);
  check_model(body, context);
  const auto ids = body.token_ids("tokens");
  if (!ids.has_value()) throw ApiError(400, "tokens: expected a list of token ids", "tokens");
  // Everything that the ids say, as vLLM does.
  const std::string text = context.engine->detokenize(*ids, /*skip_special_tokens=*/false);
  exchange->respond({.body = to_json_text({{"prompt", text}})});
}

}  // namespace pinfer::server
