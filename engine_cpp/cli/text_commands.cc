// `pinfer tokenize`, `detokenize`, `render`: JSON lines over the text part of a bundle.
#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_lines.h"

namespace pinfer::cli {
namespace {

// in: a string, or {"text": str, "add_special_tokens": bool}; out: {"ids": [int]}
Json tokenize(const Engine& engine, const Json& line) {
  if (line.is_string()) return {{"ids", engine.tokenize(line.get<std::string>())}};
  if (!line.is_object()) {
    throw Error(PINFER_INVALID_ARGUMENT, "expected a string or an object with text");
  }
  refuse_unknown_fields(line, {"text", "add_special_tokens"});
  return {{"ids", engine.tokenize(text_field(line, "text"),
                                  bool_field(line, "add_special_tokens", true))}};
}

// in: {"ids": [int], "skip_special_tokens": bool}; out: {"text": str}
Json detokenize(const Engine& engine, const Json& line) {
  if (!line.is_object()) throw Error(PINFER_INVALID_ARGUMENT, "expected an object with ids");
  refuse_unknown_fields(line, {"ids", "skip_special_tokens"});
  return {{"text", engine.detokenize(ids_field(line, "ids"),
                                     bool_field(line, "skip_special_tokens", true))}};
}

// in: {"messages": [...], "tools", "documents", ...}; out: {"text": str, "ids": [int]}
Json render(const Engine& engine, const Json& line) {
  const std::string text = engine.render(to_json_text(line));
  return {{"text", text}, {"ids", engine.tokenize(text, /*add_special_tokens=*/false)}};
}

using Answer = Json (*)(const Engine&, const Json&);

void add_command(CLI::App* app, int* exit_code, const char* name, const char* help, Answer answer) {
  auto bundle = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand(name, help);
  add_bundle(command, bundle.get());
  command->callback([=] {
    const Engine engine = open_text(*bundle);
    answer_lines([&](const Json& line) { return answer(engine, line); });
    *exit_code = kExitDone;
  });
}

}  // namespace

void add_text_commands(CLI::App* app, int* exit_code) {
  add_command(app, exit_code, "tokenize", "JSON lines: text to token ids", &tokenize);
  add_command(app, exit_code, "detokenize", "JSON lines: token ids to text", &detokenize);
  add_command(app, exit_code, "render", "JSON lines: messages through the chat template", &render);
}

}  // namespace pinfer::cli
