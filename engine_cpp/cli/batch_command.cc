// `pinfer batch`: requests as JSON lines, many at once through one scheduler, answers in order.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_lines.h"
#include "cli/stats.h"

namespace pinfer::cli {
namespace {

struct BatchFlags {
  EngineFlags engine;
  bool stats = false;
};

constexpr int64_t kMaxInteger = INT32_MAX;

void read_lists(const Json& line, SamplingParams* params) {
  if (line.contains("stop_token_ids")) params->stop_tokens = ids_field(line, "stop_token_ids");
  const auto stop = line.find("stop");
  if (stop == line.end() || stop->is_null()) return;
  if (stop->is_string()) {
    params->stop_strings = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array()) throw Error(PINFER_INVALID_ARGUMENT, "stop: expected a string or a list");
  for (const Json& item : *stop) {
    if (!item.is_string()) throw Error(PINFER_INVALID_ARGUMENT, "stop: expected strings");
    params->stop_strings.push_back(item.get<std::string>());
  }
}

SamplingParams read_params(const Engine& engine, const Json& line) {
  SamplingParams params = engine.default_sampling_params();
  const auto given = [&](const char* name) {
    const auto entry = line.find(name);
    return entry != line.end() && !entry->is_null();
  };
  const auto number = [&](const char* name, double low, double high, double* out) {
    if (given(name)) *out = number_field(line, name, low, high);
  };
  const auto integer = [&](const char* name, int64_t low, int32_t* out) {
    if (given(name)) *out = static_cast<int32_t>(integer_field(line, name, low, kMaxInteger));
  };
  number("temperature", 0, 1e300, &params.temperature);
  number("top_p", 0, 1, &params.top_p);
  number("min_p", 0, 1, &params.min_p);
  number("presence_penalty", -2, 2, &params.presence_penalty);
  number("frequency_penalty", -2, 2, &params.frequency_penalty);
  number("repetition_penalty", 0, 1e300, &params.repetition_penalty);
  integer("top_k", -1, &params.top_k);
  integer("max_tokens", 1, &params.max_tokens);
  integer("min_tokens", 0, &params.min_tokens);
  if (given("seed")) {
    params.has_seed = true;
    params.seed = integer_field(line, "seed", INT64_MIN, INT64_MAX);
  }
  params.ignore_eos = bool_field(line, "ignore_eos", false);
  params.include_stop_str_in_output = bool_field(line, "include_stop_str_in_output", false);
  params.skip_special_tokens = bool_field(line, "skip_special_tokens", true);
  read_lists(line, &params);
  return params;
}

std::vector<int32_t> read_prompt(const Engine& engine, const Json& line) {
  const int kinds = static_cast<int>(line.contains("prompt")) +
                    static_cast<int>(line.contains("prompt_ids")) +
                    static_cast<int>(line.contains("messages"));
  if (kinds != 1) {
    throw Error(PINFER_INVALID_ARGUMENT, "expected one of prompt, prompt_ids and messages");
  }
  if (line.contains("prompt_ids")) return ids_field(line, "prompt_ids");
  if (line.contains("prompt")) {
    return engine.tokenize(text_field(line, "prompt"),
                           bool_field(line, "add_special_tokens", true));
  }
  Json request = {{"parse_tool_call_arguments", true}};
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt",
                           "continue_final_message", "chat_template", "chat_template_kwargs"}) {
    if (line.contains(name)) request[name] = line[name];
  }
  return engine.tokenize(engine.render(to_json_text(request)), /*add_special_tokens=*/false);
}

Request submit_line(Engine& engine, const Json& line) {
  if (!line.is_object()) throw Error(PINFER_INVALID_ARGUMENT, "expected an object");
  refuse_unknown_fields(line, {"prompt",
                               "prompt_ids",
                               "messages",
                               "tools",
                               "documents",
                               "add_generation_prompt",
                               "continue_final_message",
                               "chat_template",
                               "chat_template_kwargs",
                               "add_special_tokens",
                               "temperature",
                               "top_p",
                               "top_k",
                               "min_p",
                               "presence_penalty",
                               "frequency_penalty",
                               "repetition_penalty",
                               "max_tokens",
                               "min_tokens",
                               "seed",
                               "ignore_eos",
                               "stop",
                               "stop_token_ids",
                               "include_stop_str_in_output",
                               "skip_special_tokens",
                               "priority",
                               "cache_salt"});
  const SamplingParams params = read_params(engine, line);
  const int32_t priority =
      line.contains("priority")
          ? static_cast<int32_t>(integer_field(line, "priority", INT32_MIN, INT32_MAX))
          : 0;
  const std::string salt = line.contains("cache_salt") ? text_field(line, "cache_salt") : "";
  return engine.submit(read_prompt(engine, line), params,
                       {.priority = priority, .cache_salt = salt});
}

Json answer(Request request, Stats* stats) {
  Output all;
  while (std::optional<Output> piece = request.next()) {
    stats->received(*piece);
    all.text += piece->text;
    all.token_ids.insert(all.token_ids.end(), piece->token_ids.begin(), piece->token_ids.end());
    all.finish_reason = piece->finish_reason;
    all.error_message = piece->error_message;
    all.num_prompt_tokens = piece->num_prompt_tokens;
  }
  if (all.finish_reason == "error") return error_answer(all.error_message);
  return {{"text", all.text},
          {"ids", all.token_ids},
          {"finish_reason", all.finish_reason},
          {"num_prompt_tokens", all.num_prompt_tokens}};
}

int batch(BatchFlags& flags) {
  Engine engine = flags.engine.open();
  Stats stats;
  stats.submitted();
  answer_request_lines([&](const Json& line) -> WaitForAnswer {
    auto request = std::make_shared<Request>(submit_line(engine, line));
    return [request, &stats] { return answer(std::move(*request), &stats); };
  });
  if (flags.stats) std::fprintf(stderr, "%s\n", stats.json(engine).c_str());
  return kExitDone;
}

}  // namespace

void add_batch_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<BatchFlags>();
  CLI::App* command =
      app->add_subcommand("batch", "JSON lines: many requests at once, answers in order");
  flags->engine.add_to(command);
  command->add_flag("--stats", flags->stats, "Print times as JSON, last on stderr");
  command->callback([flags, exit_code] { *exit_code = batch(*flags); });
}

}  // namespace pinfer::cli
