// `pinfer chat`: a conversation on the terminal. The history stays; the engine's prefix cache
// keeps it from being computed again.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/json_lines.h"

namespace pinfer::cli {
namespace {

struct ChatFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::string system;
  bool stats = false;
};

Json first_messages(const ChatFlags& flags) {
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  return messages;
}

// One turn. What the user said is taken back if the engine refuses it.
void answer(Engine& engine, const ChatFlags& flags, const std::string& line, Json* messages,
            Stats* stats) {
  messages->push_back({{"role", "user"}, {"content", line}});
  try {
    const std::string prompt = engine.render(to_request_text(Json{{"messages", *messages}}));
    stats->submitted();
    const std::string text = stream_to_stdout(
        engine.submit(engine.tokenize(prompt, false), flags.sampling.params(engine)), false, stats);
    messages->push_back({{"role", "assistant"}, {"content", text}});
  } catch (const Error& error) {
    messages->erase(messages->size() - 1);
    std::fprintf(stderr, "pinfer: error: %s\n", error.what());
  }
}

int chat(ChatFlags& flags) {
  Engine engine = flags.engine.open();
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  if (is_terminal) {
    std::fprintf(stderr, "/reset forgets the conversation, /exit or Ctrl-D ends it.\n");
  }
  catch_interrupt();
  Json messages = first_messages(flags);
  Stats stats;
  std::string line;
  for (;;) {
    clear_interrupt();
    if (is_terminal) std::fprintf(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (line == "/exit") break;
    if (line == "/reset") {
      messages = first_messages(flags);
      continue;
    }
    if (line.empty()) continue;
    answer(engine, flags, line, &messages, &stats);
  }
  if (flags.stats) std::fprintf(stderr, "%s\n", stats.json(engine).c_str());
  return kExitDone;
}

}  // namespace

void add_chat_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* command = app->add_subcommand("chat", "Talk to the model, one line at a time");
  flags->engine.add_to(command);
  flags->sampling.add_to(command);
  command->add_option("--system", flags->system, "System message");
  command->add_flag("--stats", flags->stats, "Print times as JSON, last on stderr");
  command->callback([flags, exit_code] { *exit_code = chat(*flags); });
}

}  // namespace pinfer::cli
