// `pinfer completion bash|zsh|fish`: a script for the shell, made from the commands themselves.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commands.h"

namespace pinfer::cli {
namespace {

// "--max-tokens -n --help": what may follow the command.
std::string flags_of(const CLI::App& command) {
  std::string flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags += " --" + name;
    for (const std::string& name : option->get_snames()) flags += " -" + name;
  }
  return flags.empty() ? flags : flags.substr(1);
}

std::string command_names(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names += " " + command->get_name();
  return names.substr(1);
}

void print_bash(const CLI::App& app) {
  std::printf("_pinfer() {\n  local word=${COMP_WORDS[COMP_CWORD]} words=\n");
  std::printf("  case ${COMP_CWORD}:${COMP_WORDS[1]} in\n");
  std::printf("    1:*) words=\"%s %s\" ;;\n", command_names(app).c_str(), flags_of(app).c_str());
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    std::printf("    *:%s) words=\"%s\" ;;\n", command->get_name().c_str(),
                flags_of(*command).c_str());
  }
  std::printf("  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n");
  std::printf(
      "  [[ $word == -* || $COMP_CWORD == 1 ]] || COMPREPLY=($(compgen -f -- \"$word\"))\n");
  std::printf("}\ncomplete -o filenames -F _pinfer pinfer\n");
}

void print_fish(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    const char* name = command->get_name().c_str();
    std::printf("complete -c pinfer -n __fish_use_subcommand -a %s -d '%s'\n", name,
                command->get_description().c_str());
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& flag : option->get_lnames()) {
        std::printf("complete -c pinfer -n '__fish_seen_subcommand_from %s' -l %s\n", name,
                    flag.c_str());
      }
    }
  }
}

}  // namespace

void add_completion_command(CLI::App* app, int* exit_code) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "bash: source <(pinfer completion bash); zsh: the same with zsh;\n"
      "fish: pinfer completion fish | source");
  command->callback([=] {
    if (*shell == "zsh") std::printf("autoload -U +X bashcompinit && bashcompinit\n");
    if (*shell == "fish") {
      print_fish(*app);
    } else {
      print_bash(*app);
    }
    *exit_code = 0;
  });
}

}  // namespace pinfer::cli
