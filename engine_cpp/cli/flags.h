// Flags that several commands share. Each has an environment variable PINFER_<FLAG>; a flag beats
// the environment, and the environment is read nowhere else.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"

namespace CLI {
class App;
}

namespace pinfer::cli {

// Exit codes: 0 done, 1 refused or failed, 2 usage.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// "pinfer: error: ..." on stderr, in one line.
void print_error(std::string message);

// The bundle and the engine's settings.
struct EngineFlags {
  std::string bundle;
  EngineOptions options;
  std::string scheduling_policy = "fcfs";
  std::string provider = "native";
  std::string huge_pages = "auto";
  std::string cpus;
  bool no_enable_prefix_caching = false;
  bool async_scheduling = false;
  std::string log_level = "warning";

  void add_to(CLI::App* command);
  // Opens the engine with these settings. Throws Error, saying which command to use, if the model
  // is for another task.
  Engine open();           // generates text
  Engine open_to_embed();  // embeds
  // Of any task; log lines of the level go to `log`, or to stderr.
  Engine open_to_serve(std::function<void(pinfer_log_level, const char*)> log = nullptr);
  pinfer_log_level parsed_log_level() const;

 private:
  static void log_line(void* user_data, pinfer_log_level level, const char* message);

  std::function<void(pinfer_log_level, const char*)> log_;
};

// Sampling parameters; what is not given comes from the model's defaults.
struct SamplingFlags {
  std::optional<int32_t> max_tokens, top_k, min_tokens;
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;

  void add_to(CLI::App* command);
  // max_tokens: the rest of the context unless given.
  SamplingParams params(const Engine& engine) const;
};

// Gives every flag of every command its environment variable; call it once all are declared.
void name_environment(CLI::App* app);

// Lets options that take integers take nothing else, in decimal; call it once all are declared.
void check_integers(CLI::App* app);

// Whether the program has a command of this name.
bool has_command(const CLI::App& app, const std::string& name);

// The positional argument alone, for commands without engine settings. A program that carries a
// bundle takes none: it is that one.
void add_bundle(CLI::App* command, std::string* bundle);

// The bundle's text part alone.
Engine open_text(const std::string& bundle);

}  // namespace pinfer::cli
