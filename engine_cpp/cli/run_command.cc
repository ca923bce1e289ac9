// `pinfer run`: one prompt, streamed answer.

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/json_lines.h"

namespace pinfer::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string prompt, prompt_file, system;
  bool chat = false, ids = false, stats = false;
};

std::vector<int32_t> prompt_ids(const Engine& engine, const RunFlags& flags,
                                const std::string& prompt) {
  if (!flags.chat) return engine.tokenize(prompt);
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  const Json request = {{"messages", messages}};
  return engine.tokenize(engine.render(to_request_text(request)), /*add_special_tokens=*/false);
}

int run(RunFlags& flags, const CLI::Option* prompt_option) {
  const std::string prompt =
      prompt_option->count() > 0 ? flags.prompt : read_all(flags.prompt_file);
  Engine engine = flags.engine.open();
  catch_interrupt();
  Stats stats;
  stats.submitted();
  Request request = engine.submit(prompt_ids(engine, flags, prompt), flags.sampling.params(engine));
  try {
    stream_to_stdout(std::move(request), flags.ids, &stats);
  } catch (const Error&) {
    if (flags.stats) std::fprintf(stderr, "%s\n", stats.json(engine).c_str());
    throw;
  }
  if (flags.stats) std::fprintf(stderr, "%s\n", stats.json(engine).c_str());
  return kExitDone;
}

}  // namespace

void add_run_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command = app->add_subcommand("run", "Generate from one prompt");
  flags->engine.add_to(command);
  flags->sampling.add_to(command);
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "The prompt");
  command->add_option("-f,--file", flags->prompt_file, "Read the prompt from a file")
      ->excludes(prompt);
  CLI::Option* chat =
      command->add_flag("--chat", flags->chat, "Put the prompt through the chat template");
  command->add_option("--system", flags->system, "System message (with --chat)")->needs(chat);
  command->add_flag("--ids", flags->ids, "Print token ids instead of text");
  command->add_flag("--stats", flags->stats, "Print times as JSON, last on stderr");
  command->footer(
      "The prompt comes from -p, from -f FILE, or from stdin, as it is: a newline at its end is a "
      "part of it.");
  command->callback([flags, prompt, exit_code] { *exit_code = run(*flags, prompt); });
}

}  // namespace pinfer::cli
