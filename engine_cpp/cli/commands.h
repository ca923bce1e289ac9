// The commands: one file each. add_..._command() declares its flags; when it is chosen, it runs
// inside CLI11's parse and sets *exit_code. Commands throw pinfer::Error.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace pinfer::cli {

void add_run_command(CLI::App* app, int* exit_code);
void add_chat_command(CLI::App* app, int* exit_code);
void add_batch_command(CLI::App* app, int* exit_code);
void add_score_command(CLI::App* app, int* exit_code);
void add_embed_command(CLI::App* app, int* exit_code);
void add_serve_command(CLI::App* app, int* exit_code);
void add_bench_command(CLI::App* app, int* exit_code);
void add_text_commands(CLI::App* app, int* exit_code);    // tokenize, detokenize, render
void add_bundle_commands(CLI::App* app, int* exit_code);  // inspect, verify, describe
void add_completion_command(CLI::App* app, int* exit_code);

}  // namespace pinfer::cli
