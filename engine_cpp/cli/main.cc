// pinfer: the command line. A client of the public C++ interface only.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/commands.h"
#include "cli/flags.h"

namespace {

void print_error(std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  std::fprintf(stderr, "pinfer: error: %s\n", message.c_str());
}

}  // namespace

int main(int argc, char** argv) {
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
  cli::add_bench_command(&app, &exit_code);
  cli::add_text_commands(&app, &exit_code);
  cli::add_bundle_commands(&app, &exit_code);
  cli::add_completion_command(&app, &exit_code);
  cli::name_environment(&app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "Run with --help for the commands and flags.\n");
    print_error(error.what());
    return cli::kExitUsage;
  } catch (const pinfer::Error& error) {
    print_error(error.what());
    return cli::kExitFailed;
  } catch (const std::exception& error) {
    print_error(error.what());
    return cli::kExitFailed;
  }
  return exit_code;
}
