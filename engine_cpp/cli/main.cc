// pinfer: the command line. A client of the public C++ interface only.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_lines.h"
#include "cli/own_bundle.h"

namespace {

// A key on the command line must not stay where every user of the machine can read it. CLI11 has
// copies of the arguments.
void hide_keys(int argc, char** argv) {
  constexpr std::string_view kFlag = "--api-key";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == kFlag && i + 1 < argc) {
      std::fill_n(argv[i + 1], std::strlen(argv[i + 1]), '*');
    } else if (argument.starts_with(kFlag) && argument.substr(kFlag.size()).starts_with('=')) {
      std::fill(argv[i] + kFlag.size() + 1, argv[i] + argument.size(), '*');
    }
  }
}

int run(int argc, char** argv) {
  namespace cli = pinfer::cli;
  // A reader that goes away (`pinfer run ... | head`) ends the program like any other filter.
  std::signal(SIGPIPE, SIG_DFL);
  CLI::App app("pinfer: language models compiled ahead of time", "pinfer");
  app.set_version_flag("--version", std::string("pinfer ") + pinfer_version());
  app.require_subcommand(1);
  int exit_code = cli::kExitDone;
  cli::add_run_command(&app, &exit_code);
  cli::add_chat_command(&app, &exit_code);
  cli::add_batch_command(&app, &exit_code);
  cli::add_score_command(&app, &exit_code);
  cli::add_embed_command(&app, &exit_code);
  cli::add_serve_command(&app, &exit_code);
  cli::add_bench_command(&app, &exit_code);
  cli::add_text_commands(&app, &exit_code);
  cli::add_bundle_commands(&app, &exit_code);
  cli::add_completion_command(&app, &exit_code);
  cli::name_environment(&app);
  cli::check_integers(&app);
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    cli::add_default_command(app, &arguments);
    // CLI11 would say that a command is missing.
    if (!arguments.empty() && !arguments[0].starts_with('-') &&
        !cli::has_command(app, arguments[0])) {
      throw CLI::ParseError(arguments[0] + ": no such command", CLI::ExitCodes::ExtrasError);
    }
    // CLI11 takes them from the back.
    std::reverse(arguments.begin(), arguments.end());
    hide_keys(argc, argv);
    app.parse(std::move(arguments));
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "Run with --help for the commands and flags.\n");
    cli::print_error(error.what());
    return cli::kExitUsage;
  } catch (const pinfer::Error& error) {
    cli::print_error(error.what());
    return cli::kExitFailed;
  } catch (const std::exception& error) {
    cli::print_error(error.what());
    return cli::kExitFailed;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const int exit_code = run(argc, argv);
  // What was said may not have arrived: a full disk.
  if (exit_code != pinfer::cli::kExitDone) return exit_code;
  try {
    pinfer::cli::flush_output();
  } catch (const pinfer::Error& error) {
    pinfer::cli::print_error(error.what());
    return pinfer::cli::kExitFailed;
  }
  return exit_code;
}
