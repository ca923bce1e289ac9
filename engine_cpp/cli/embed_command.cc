// `pinfer embed`: texts to vectors, as JSON lines, or one text.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_lines.h"
#include "json/float_list.h"

namespace pinfer::cli {
namespace {

struct EmbedFlags {
  EngineFlags engine;
  std::optional<std::string> text, prompt_name;
  int32_t dimensions = 0;
};

// A line's inputs, and whether it has a list of texts: then its answer has a list, too.
struct Inputs {
  std::vector<std::vector<int32_t>> ids;
  bool is_list = false;
};

Inputs read_inputs(const Engine& engine, const Json& line,
                   const std::optional<std::string>& prompt_name) {
  const auto input = line.find("input");
  if (input == line.end()) throw Error(PINFER_INVALID_ARGUMENT, "input: missing");
  if (input->is_string()) {
    return {{engine.tokenize_to_embed(input->get<std::string>(), prompt_name)}};
  }
  if (!input->is_array() || input->empty()) {
    throw Error(PINFER_INVALID_ARGUMENT, "input: expected a string, a list of strings, or ids");
  }
  if (!input->front().is_string()) return {{ids_field(line, "input")}};
  Inputs inputs{.ids = {}, .is_list = true};
  for (const Json& text : *input) {
    if (!text.is_string()) throw Error(PINFER_INVALID_ARGUMENT, "input: expected strings");
    inputs.ids.push_back(engine.tokenize_to_embed(text.get<std::string>(), prompt_name));
  }
  return inputs;
}

Json answer(std::vector<Request>& requests, bool is_list) {
  Json list = Json::array();
  int64_t num_prompt_tokens = 0;
  for (Request& request : requests) {
    const Output output = request.wait();
    if (output.finish_reason != "stop") {
      return error_answer(output.error_message.empty() ? output.finish_reason
                                                       : output.error_message);
    }
    list.push_back(float_list(output.embedding));
    num_prompt_tokens += output.num_prompt_tokens;
  }
  Json answer;
  if (is_list) {
    answer["embeddings"] = std::move(list);
  } else {
    answer["embedding"] = std::move(list.front());
  }
  answer["num_prompt_tokens"] = num_prompt_tokens;
  return answer;
}

// in: {"input": str | [str] | [int], "dimensions": int, "prompt_name": str}
WaitForAnswer begin(Engine& engine, const EmbedFlags& flags, const Json& line) {
  if (!line.is_object()) throw Error(PINFER_INVALID_ARGUMENT, "expected an object with input");
  refuse_unknown_fields(line, {"input", "dimensions", "prompt_name"});
  std::optional<std::string> prompt_name = flags.prompt_name;
  if (line.contains("prompt_name")) prompt_name = text_field(line, "prompt_name");
  EmbedOptions options;
  options.dimensions = flags.dimensions;
  if (line.contains("dimensions")) {
    options.dimensions = static_cast<int32_t>(integer_field(line, "dimensions", 1, INT32_MAX));
  }
  const Inputs inputs = read_inputs(engine, line, prompt_name);
  auto requests = std::make_shared<std::vector<Request>>();
  for (const std::vector<int32_t>& ids : inputs.ids) {
    requests->push_back(engine.embed(ids, options));
  }
  return [requests, is_list = inputs.is_list] { return answer(*requests, is_list); };
}

int embed(EmbedFlags& flags) {
  Engine engine = flags.engine.open_to_embed();
  if (!flags.text.has_value()) {
    answer_request_lines([&](const Json& line) { return begin(engine, flags, line); });
    return kExitDone;
  }
  const Json result = begin(engine, flags, {{"input", *flags.text}})();
  if (result.contains("error")) {
    throw Error(PINFER_INTERNAL, result["error"].get<std::string>());
  }
  print_line(result);
  return kExitDone;
}

}  // namespace

void add_embed_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command =
      app->add_subcommand("embed", "JSON lines: texts to vectors, with a model that embeds");
  flags->engine.add_to(command);
  command->add_option("-p,--prompt", flags->text, "Embed this text instead of reading stdin");
  command->add_option("--prompt-name", flags->prompt_name,
                      "The model's prompt that stands before texts (default: the model's)");
  command
      ->add_option("--dimensions", flags->dimensions,
                   "Leading numbers of each vector that are kept (0: all)")
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "A line is {\"input\": a string, a list of strings, or ids}; \"dimensions\" and "
      "\"prompt_name\" win\nover the flags.");
  command->callback([flags, exit_code] { *exit_code = embed(*flags); });
}

}  // namespace pinfer::cli
