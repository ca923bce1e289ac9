// /v1/completions
#include <map>

#include "server/api_error.h"
#include "server/openai/endpoint.h"
#include "server/openai/generation.h"
#include "server/openai/logprobs_json.h"

namespace pinfer::server {
namespace {

constexpr int64_t kMaxLogprobs = 5;
constexpr int32_t kDefaultMaxTokens = 16;

struct CompletionPrompts {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> texts;  // for echo
};

struct CompletionOptions {
  std::string model;
  bool echo = false;
  bool only_echo = false;  // max_tokens 0: what was sampled is left out
  std::optional<size_t> num_logprobs;
  bool prompt_logprobs = false;
  bool skip_special_tokens = true;
  CompletionPrompts prompts;
};

class CompletionFormat final : public AnswerFormat {
 public:
  CompletionFormat(std::shared_ptr<Engine> engine, CompletionOptions options)
      : engine_(std::move(engine)),
        options_(std::move(options)),
        id_(new_object_id("cmpl-")),
        created_(seconds_since_1970()) {}

  Json header(bool) const override {
    return {{"id", id_},
            {"object", "text_completion"},
            {"created", created_},
            {"model", options_.model}};
  }

  Json whole(const Choice& choice) const override {
    const Output& output = choice.output;
    CompletionLogprobs logprobs(*engine_, options_.num_logprobs.value_or(0));
    std::string text;
    if (options_.echo) {
      text = options_.prompts.texts[choice.prompt_index];
      add_prompt(choice, &logprobs);
    }
    if (!options_.only_echo) {
      text += output.text;
      add_output(output, &logprobs);
    }
    const std::string reason = options_.only_echo ? "length" : output.finish_reason;
    Json made = entry(choice, std::move(text), reason);
    if (options_.num_logprobs.has_value()) made["logprobs"] = logprobs.take();
    if (options_.prompt_logprobs) {
      made["prompt_logprobs"] = prompt_logprobs(*engine_, options_.prompts.ids[choice.prompt_index],
                                                output.prompt_logprobs);
    }
    return made;
  }

  std::vector<Json> events(const Choice& choice, const Output& piece, bool is_first) override {
    auto [state, added] =
        logprobs_.try_emplace(choice.index, *engine_, options_.num_logprobs.value_or(0));
    std::string text;
    if (is_first && options_.echo) {
      // The prompt's logprobs may come in several pieces, all before the first token.
      if (piece.token_ids.empty() && !piece.finished()) return {};
      text = options_.prompts.texts[choice.prompt_index];
      add_prompt(choice, &state->second);
    }
    if (!options_.only_echo) {
      text += piece.text;
      add_output(piece, &state->second);
    }
    const bool has_logprobs = options_.num_logprobs.has_value() && !piece.token_ids.empty();
    if (text.empty() && !has_logprobs && !piece.finished()) return {};
    const std::string reason =
        options_.only_echo && piece.finished() ? "length" : piece.finish_reason;
    Json made = entry(choice, std::move(text), reason);
    if (options_.num_logprobs.has_value()) made["logprobs"] = state->second.take();
    return {std::move(made)};
  }

 private:
  static Json entry(const Choice& choice, std::string text, const std::string& finish_reason) {
    return {{"index", choice.index},
            {"text", std::move(text)},
            {"logprobs", nullptr},
            {"finish_reason", finish_reason.empty() ? Json(nullptr) : Json(finish_reason)}};
  }

  void add_prompt(const Choice& choice, CompletionLogprobs* logprobs) const {
    if (!options_.num_logprobs.has_value()) return;
    const std::vector<int32_t>& ids = options_.prompts.ids[choice.prompt_index];
    logprobs->begin_prompt(options_.prompts.texts[choice.prompt_index]);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i == 0 || i > choice.output.prompt_logprobs.size()) {
        logprobs->add_unpredicted(ids[i]);
      } else {
        logprobs->add(ids[i], choice.output.prompt_logprobs[i - 1]);
      }
    }
  }

  void add_output(const Output& piece, CompletionLogprobs* logprobs) const {
    if (!options_.num_logprobs.has_value()) return;
    logprobs->begin_output(options_.skip_special_tokens);
    for (size_t i = 0; i < piece.token_ids.size() && i < piece.logprobs.size(); ++i) {
      logprobs->add(piece.token_ids[i], piece.logprobs[i]);
    }
  }

  const std::shared_ptr<Engine> engine_;
  const CompletionOptions options_;
  const std::string id_;
  const int64_t created_;
  std::map<int, CompletionLogprobs> logprobs_;  // of streams, by choice
};

void add_text_prompt(const EndpointContext& context, const Fields& body, const std::string& text,
                     const std::string& path, CompletionPrompts* prompts) {
  if (!body.has("truncate_prompt_tokens")) context.prompt_limit->check(text, path);
  const bool add_special_tokens = body.boolean("add_special_tokens").value_or(true);
  prompts->ids.push_back(context.engine->tokenize(text, add_special_tokens));
  prompts->texts.push_back(text);
}

void add_id_prompt(const Engine& engine, std::vector<int32_t> ids, bool echo,
                   CompletionPrompts* prompts) {
  prompts->texts.push_back(echo ? engine.detokenize(ids, false) : "");
  prompts->ids.push_back(std::move(ids));
}

// A string, a list of strings, a list of ids, or a list of lists of ids.
CompletionPrompts read_prompts(const EndpointContext& context, const Fields& body, bool echo) {
  const Engine& engine = *context.engine;
  const Json* prompt = body.find("prompt");
  const std::string expected = "a string, a list of strings, token ids or lists of token ids";
  if (prompt == nullptr) {
    throw ApiError(400, "prompt: expected " + expected + ", found none", "prompt");
  }
  CompletionPrompts prompts;
  if (prompt->is_string()) {
    add_text_prompt(context, body, prompt->get<std::string>(), "prompt", &prompts);
    return prompts;
  }
  if (!prompt->is_array()) refuse_value("prompt", expected, *prompt);
  if (prompt->empty()) throw ApiError(400, "prompt: the list is empty", "prompt");
  if (prompt->front().is_number()) {
    add_id_prompt(engine, read_token_ids(*prompt, "prompt"), echo, &prompts);
    return prompts;
  }
  if (prompt->size() > kMaxPrompts) {
    throw ApiError(400,
                   "prompt: expected at most " + std::to_string(kMaxPrompts) + " prompts, found " +
                       std::to_string(prompt->size()),
                   "prompt");
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& entry = (*prompt)[i];
    const std::string path = "prompt[" + std::to_string(i) + "]";
    if (entry.is_string() && prompt->front().is_string()) {
      add_text_prompt(context, body, entry.get<std::string>(), path, &prompts);
    } else if (entry.is_array() && prompt->front().is_array()) {
      add_id_prompt(engine, read_token_ids(entry, path), echo, &prompts);
    } else {
      refuse_value(path, prompt->front().is_array() ? "a list of token ids" : "a string", entry);
    }
  }
  return prompts;
}

void refuse_unsupported(const Fields& body) {
  if (const auto best_of = body.integer("best_of", 0, INT32_MAX); best_of.value_or(1) != 1) {
    throw ApiError(400, "best_of: is not supported", "best_of");
  }
  if (!body.text("suffix").value_or("").empty()) {
    throw ApiError(400, "suffix: is not supported", "suffix");
  }
  if (const Json* format = body.find("response_format")) {
    if (!format->is_object()) refuse_value("response_format", "an object", *format);
    if (Fields(*format, "response_format.").text("type").value_or("") != "text") {
      throw ApiError(400, "response_format.type: only \"text\" is supported",
                     "response_format.type");
    }
  }
  refuse_fields(
      body, {"guided_json", "guided_regex", "guided_grammar", "guided_choice", "structured_outputs",
             "grammar", "json_schema", "use_beam_search", "logits_processors", "prompt_embeds"});
}

void read_logprobs(const Fields& body, bool stream, CompletionOptions* options,
                   SamplingParams* params) {
  if (const auto logprobs = body.integer("logprobs", 0, kMaxLogprobs)) {
    options->num_logprobs = static_cast<size_t>(*logprobs);
    params->logprobs = static_cast<int32_t>(*logprobs);
    if (options->echo) params->prompt_logprobs = params->logprobs;
  }
  if (const auto prompt = body.integer("prompt_logprobs", 0, kMaxPromptLogprobs)) {
    if (stream) throw ApiError(400, "prompt_logprobs: not with stream", "prompt_logprobs");
    options->prompt_logprobs = true;
    params->prompt_logprobs = std::max(params->prompt_logprobs, static_cast<int32_t>(*prompt));
  }
}

}  // namespace

void handle_completions(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange) {
  const Json json = read_body(context, *exchange);
  const Fields body(json);
  CompletionOptions options;
  options.model = check_model(body, context);
  check_embeds(context, false);
  refuse_unsupported(body);
  const Engine& engine = *context.engine;
  GenerationPlan plan;
  plan.param_of_prompt = "prompt";
  plan.options = read_answer_options(body);
  plan.params = read_sampling_params(body, engine.default_sampling_params());
  options.echo = body.boolean("echo").value_or(false);
  options.skip_special_tokens = plan.params.skip_special_tokens;
  read_logprobs(body, plan.options.stream, &options, &plan.params);
  const auto max_tokens = body.integer("max_tokens", 0, INT32_MAX);
  plan.params.max_tokens = static_cast<int32_t>(max_tokens.value_or(kDefaultMaxTokens));
  if (plan.params.max_tokens == 0) {
    if (!options.echo) throw ApiError(400, "max_tokens: 0 only with echo", "max_tokens");
    options.only_echo = true;  // one token is computed, for the prompt's sake, and left out
    plan.params.max_tokens = 1;
    plan.params.min_tokens = 0;
  }
  plan.leaves_output_out = options.only_echo;
  options.prompts = read_prompts(context, body, options.echo);
  check_num_choices(options.prompts.ids.size(), plan.options.num_choices, context);
  for (size_t i = 0; i < options.prompts.ids.size(); ++i) {
    const size_t size = options.prompts.ids[i].size();
    truncate_prompt(body, context.max_model_len, &options.prompts.ids[i]);
    if (options.echo && options.prompts.ids[i].size() != size) {
      options.prompts.texts[i] = engine.detokenize(options.prompts.ids[i], false);
    }
  }
  plan.prompts = options.prompts.ids;
  auto format = std::make_unique<CompletionFormat>(context.engine, std::move(options));
  std::make_shared<Generation>(context.engine, exchange, context.metrics, std::move(plan),
                               std::move(format), context.executor)
      ->start();
}

}  // namespace pinfer::server
