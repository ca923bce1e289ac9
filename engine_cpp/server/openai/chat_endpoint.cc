// /v1/chat/completions
#include <algorithm>

#include "server/api_error.h"
#include "server/openai/chat_prompt.h"
#include "server/openai/endpoint.h"
#include "server/openai/generation.h"
#include "server/openai/logprobs_json.h"

namespace pinfer::server {
namespace {

constexpr int64_t kMaxTopLogprobs = 20;

struct ChatOptions {
  std::string model;
  bool logprobs = false;
  size_t num_top = 0;
  bool prompt_logprobs = false;
};

class ChatFormat final : public AnswerFormat {
 public:
  ChatFormat(std::shared_ptr<Engine> engine, ChatOptions options,
             std::vector<int32_t> prompt_token_ids)
      : engine_(std::move(engine)),
        options_(std::move(options)),
        prompt_token_ids_(std::move(prompt_token_ids)),
        id_(new_object_id("chatcmpl-")),
        created_(seconds_since_1970()) {}

  Json header(bool stream) const override {
    return {{"id", id_},
            {"object", stream ? "chat.completion.chunk" : "chat.completion"},
            {"created", created_},
            {"model", options_.model}};
  }

  Json whole(const Choice& choice) const override {
    const Output& output = choice.output;
    Json entry = {
        {"index", choice.index},
        {"message", {{"role", "assistant"}, {"content", output.text}, {"refusal", nullptr}}},
        {"logprobs", logprobs_of(output)},
        {"finish_reason", output.finish_reason}};
    if (options_.prompt_logprobs) {
      entry["prompt_logprobs"] =
          prompt_logprobs(*engine_, prompt_token_ids_, output.prompt_logprobs);
    }
    return entry;
  }

  std::vector<Json> events(const Choice& choice, const Output& piece, bool is_first) override {
    std::vector<Json> events;
    if (is_first) {
      events.push_back(event(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, ""));
    }
    const bool has_logprobs = options_.logprobs && !piece.logprobs.empty();
    if (!piece.text.empty() || has_logprobs) {
      events.push_back(event(choice, {{"content", piece.text}}, logprobs_of(piece), ""));
    }
    if (piece.finished()) {
      events.push_back(event(choice, Json::object(), nullptr, piece.finish_reason));
    }
    return events;
  }

 private:
  static Json event(const Choice& choice, Json delta, Json logprobs,
                    const std::string& finish_reason) {
    return {{"index", choice.index},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", finish_reason.empty() ? Json(nullptr) : Json(finish_reason)}};
  }

  Json logprobs_of(const Output& output) const {
    if (!options_.logprobs) return nullptr;
    return chat_logprobs(*engine_, output.token_ids, output.logprobs, options_.num_top);
  }

  const std::shared_ptr<Engine> engine_;
  const ChatOptions options_;
  const std::vector<int32_t> prompt_token_ids_;
  const std::string id_;
  const int64_t created_;
};

// What this server does not do must not be silently left out.
void refuse_unsupported(const Fields& body) {
  if (const Json* format = body.find("response_format")) {
    if (!format->is_object()) refuse_value("response_format", "an object", *format);
    const auto type = Fields(*format, "response_format.").text("type");
    if (type.value_or("") != "text") {
      throw ApiError(400, "response_format.type: only \"text\" is supported",
                     "response_format.type");
    }
  }
  if (const Json* choice = body.find("tool_choice")) {
    if (*choice != "none" && *choice != "auto") {
      throw ApiError(400, "tool_choice: only \"none\" and \"auto\" are supported", "tool_choice");
    }
  }
  refuse_fields(body, {"functions", "function_call", "audio", "guided_json", "guided_regex",
                       "guided_grammar", "guided_choice", "structured_outputs", "grammar",
                       "json_schema", "use_beam_search", "logits_processors"});
}

ChatOptions read_logprobs(const Fields& body, bool stream, SamplingParams* params) {
  ChatOptions options;
  options.logprobs = body.boolean("logprobs").value_or(false);
  const auto num_top = body.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (num_top.has_value() && !options.logprobs) {
    throw ApiError(400, "top_logprobs: only with logprobs", "top_logprobs");
  }
  options.num_top = static_cast<size_t>(num_top.value_or(0));
  params->logprobs = options.logprobs ? static_cast<int32_t>(options.num_top) : -1;
  const auto prompt = body.integer("prompt_logprobs", 0, kMaxPromptLogprobs);
  if (prompt.has_value() && stream) {
    throw ApiError(400, "prompt_logprobs: not with stream", "prompt_logprobs");
  }
  options.prompt_logprobs = prompt.has_value();
  params->prompt_logprobs = static_cast<int32_t>(prompt.value_or(-1));
  return options;
}

}  // namespace

void handle_chat_completions(const EndpointContext& context,
                             const std::shared_ptr<Exchange>& exchange) {
  const Json json = read_body(context, *exchange);
  const Fields body(json);
  const std::string model = check_model(body, context);
  check_embeds(context, false);
  refuse_unsupported(body);
  const Engine& engine = *context.engine;
  GenerationPlan plan;
  plan.param_of_prompt = "messages";
  plan.options = read_answer_options(body);
  check_num_choices(1, plan.options.num_choices, context);
  plan.params = read_sampling_params(body, engine.default_sampling_params());
  ChatOptions options = read_logprobs(body, plan.options.stream, &plan.params);
  options.model = model;
  const auto old_name = body.integer("max_tokens", 1, INT32_MAX);
  const auto max_tokens = body.integer("max_completion_tokens", 1, INT32_MAX);
  plan.params.max_tokens = static_cast<int32_t>(max_tokens.value_or(old_name.value_or(0)));
  const bool add_special_tokens = body.boolean("add_special_tokens").value_or(false);
  const std::string prompt = render_chat_prompt(engine, body);
  if (!body.has("truncate_prompt_tokens")) context.prompt_limit->check(prompt, "messages");
  plan.prompts.push_back(engine.tokenize(prompt, add_special_tokens));
  truncate_prompt(body, context.max_model_len, &plan.prompts[0]);
  auto format = std::make_unique<ChatFormat>(context.engine, std::move(options), plan.prompts[0]);
  std::make_shared<Generation>(context.engine, exchange, context.metrics, std::move(plan),
                               std::move(format), context.executor)
      ->start();
}

}  // namespace pinfer::server
