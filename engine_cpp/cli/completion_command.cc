// `pinfer completion bash|zsh|fish`: a script for the shell, made from the commands themselves.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>

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

// Quotes for single quotes of a shell, and marks what stands between brackets in zsh's _arguments.
std::string zsh_text(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted;
}

// What may stand behind a flag: ":TEXT:(fcfs priority)" where the values are known, files else.
std::string zsh_value(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin != std::string::npos && end != std::string::npos) {
    std::string choices = type.substr(begin + 1, end - begin - 1);
    for (char& c : choices) c = c == ',' ? ' ' : c;
    return ":value:(" + choices + ")";
  }
  return ":value:_files";
}

void print_zsh_flags(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string value = zsh_value(*option);
    const std::string help = "[" + zsh_text(option->get_description()) + "]" + value;
    for (const std::string& name : option->get_snames()) {
      std::printf(" \\\n        '*-%s%s'", name.c_str(), help.c_str());
    }
    for (const std::string& name : option->get_lnames()) {
      std::printf(" \\\n        '*--%s%s%s'", name.c_str(), value.empty() ? "" : "=", help.c_str());
    }
    if (option->get_positional()) std::printf(" \\\n        '%s'", zsh_value(*option).c_str());
  }
}

void print_zsh(const CLI::App& app) {
  std::printf("#compdef pinfer\n_pinfer() {\n  local -a commands=(\n");
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    std::printf("    '%s:%s'\n", command->get_name().c_str(),
                zsh_text(command->get_description()).c_str());
  }
  std::printf("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n");
  std::printf("    _arguments");
  print_zsh_flags(app);
  std::printf("\n    return\n  fi\n");
  // The command's own words alone, so that its positional argument is the first one.
  std::printf("  local name=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $name in\n");
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    std::printf("    %s)\n      _arguments -s", command->get_name().c_str());
    print_zsh_flags(*command);
    std::printf(" ;;\n");
  }
  std::printf("  esac\n}\ncompdef _pinfer pinfer\n");
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
      "bash: source <(pinfer completion bash);\n"
      "zsh, after compinit: source <(pinfer completion zsh);\n"
      "fish: pinfer completion fish | source");
  command->callback([=] {
    if (*shell == "fish") {
      print_fish(*app);
    } else if (*shell == "zsh") {
      print_zsh(*app);
    } else {
      print_bash(*app);
    }
    *exit_code = 0;
  });
}

}  // namespace pinfer::cli
