#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/own_bundle.h"

namespace pinfer::cli {
namespace {

const std::vector<std::string> kLogLevels = {"debug", "info", "warning", "error"};

int level_index(const std::string& name) {
  for (size_t i = 0; i < kLogLevels.size(); ++i) {
    if (kLogLevels[i] == name) return static_cast<int>(i);
  }
  return 0;
}

bool embeds(const Engine& engine) {
  return nlohmann::json::parse(engine.info_json()).value("task", "") == "embed";
}

}  // namespace

void print_error(std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  std::fprintf(stderr, "pinfer: error: %s\n", message.c_str());
}

// "--max-num-seqs" -> PINFER_MAX_NUM_SEQS.
void name_environment(CLI::App* app) {
  for (CLI::App* command : app->get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options()) {
      if (option->get_lnames().empty() || option == command->get_help_ptr()) continue;
      std::string name = "PINFER_";
      for (const char c : option->get_lnames().front()) {
        name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      }
      option->envname(name);
    }
  }
}

// CLI11 reads 010 as 8, and numbers beyond 64 bits as the largest.
void check_integers(CLI::App* app) {
  const CLI::Validator check(
      [](std::string& text) -> std::string {
        const char* begin = text.c_str() + (text.starts_with('-') ? 1 : 0);
        const bool is_number =
            *begin != '\0' && std::strspn(begin, "0123456789") == std::strlen(begin);
        if (!is_number || (begin[0] == '0' && begin[1] != '\0')) {
          return "expected an integer, found " + text;
        }
        errno = 0;
        (void)std::strtoll(text.c_str(), nullptr, 10);
        if (errno == ERANGE) return "expected an integer of 64 bits, found " + text;
        return "";
      },
      "", "integer");
  for (CLI::App* command : app->get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type.starts_with("INT") || type.starts_with("UINT")) option->check(check);
    }
  }
}

bool has_command(const CLI::App& app, const std::string& name) {
  const std::vector<const CLI::App*> commands = app.get_subcommands(nullptr);
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->get_name() == name; });
}

void add_bundle(CLI::App* command, std::string* bundle) {
  if (own_bundle()) {
    *bundle = *own_bundle();
    return;
  }
  command->add_option("bundle", *bundle, "Bundle directory, or a file that carries a bundle")
      ->required()
      ->type_name("BUNDLE");
}

Engine open_text(const std::string& bundle) {
  EngineOptions options;
  options.text_only = true;
  return Engine(bundle, options);
}

void EngineFlags::add_to(CLI::App* command) {
  add_bundle(command, &bundle);
  const std::string group = "Engine";
  const auto engine = [&](CLI::Option* option) { option->group(group)->capture_default_str(); };
  engine(command->add_option("--max-model-len", options.max_model_len,
                             "Longest context, in tokens (0: the model's)"));
  engine(command->add_option("--max-num-seqs", options.max_num_seqs, "Requests running at once"));
  engine(command->add_option("--max-num-batched-tokens", options.max_num_batched_tokens,
                             "Tokens computed in one step"));
  engine(command->add_option("--num-blocks", options.num_blocks,
                             "Cache blocks, null block included (0: from free memory)"));
  engine(command->add_option("--block-size", options.block_size, "Tokens in a cache block"));
  engine(command->add_option("--long-prefill-token-threshold", options.long_prefill_token_threshold,
                             "Cap of one request's tokens per step (0: off)"));
  engine(command->add_option("--scheduling-policy", scheduling_policy, "fcfs or priority")
             ->check(CLI::IsMember({"fcfs", "priority"})));
  command
      ->add_flag("--no-enable-prefix-caching", no_enable_prefix_caching,
                 "Do not reuse cached prefixes")
      ->group(group);
  engine(
      command->add_option("--threads", options.threads,
                          "Compute threads (0: OMP_NUM_THREADS, else cgroup quota and affinity)"));
  engine(command
             ->add_option("--cpus", cpus,
                          "Bind compute threads to these, as 0-3,8, or to a memory node's, as"
                          " node:0 (default: to none)")
             ->type_name("LIST"));
  engine(command->add_option("--provider", provider, "native or torch")
             ->check(CLI::IsMember({"native", "torch"})));
  engine(command
             ->add_option("--huge-pages", huge_pages,
                          "auto: copy the weights into huge pages where memory allows; off")
             ->check(CLI::IsMember({"auto", "off"})));
  engine(command->add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                             "Share of a GPU's memory to take, for bundles for CUDA"));
  engine(command->add_option("--max-cuda-graph-seqs", options.max_cuda_graph_seqs,
                             "Largest decode step that a GPU records (0: none)"));
  command
      ->add_flag("--async-scheduling", async_scheduling,
                 "Schedule the next step while a GPU computes one")
      ->group(group);
  command->add_flag("--verify", options.verify, "Check the hash of every file first")->group(group);
  engine(command->add_option("--log-level", log_level, "debug, info, warning or error")
             ->check(CLI::IsMember(kLogLevels)));
}

pinfer_log_level EngineFlags::parsed_log_level() const {
  return static_cast<pinfer_log_level>(level_index(log_level));
}

void EngineFlags::log_line(void* user_data, pinfer_log_level level, const char* message) {
  const auto* flags = static_cast<const EngineFlags*>(user_data);
  if (level < flags->parsed_log_level()) return;
  if (flags->log_) {
    flags->log_(level, message);
  } else {
    std::fprintf(stderr, "pinfer: %s: %s\n", kLogLevels[level].c_str(), message);
  }
}

Engine EngineFlags::open() {
  Engine engine = open_to_serve();
  if (!embeds(engine)) return engine;
  throw Error(PINFER_FAILED_PRECONDITION,
              bundle +
                  ": the model embeds (task embed) and generates no text; use pinfer embed, or"
                  " POST /v1/embeddings of pinfer serve");
}

Engine EngineFlags::open_to_embed() {
  Engine engine = open_to_serve();
  if (embeds(engine)) return engine;
  throw Error(PINFER_FAILED_PRECONDITION,
              bundle +
                  ": the model generates text (task generate) and does not embed; export an"
                  " embedding model, or this one with pinfer-export --task embed");
}

Engine EngineFlags::open_to_serve(std::function<void(pinfer_log_level, const char*)> log) {
  log_ = std::move(log);
  if (options.threads == 0) {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    if (threads != nullptr) options.threads = std::max(std::atoi(threads), 0);
  }
  options.scheduling_policy = scheduling_policy.c_str();
  options.provider = provider.c_str();
  options.huge_pages = huge_pages.c_str();
  options.cpus = cpus.c_str();
  options.enable_prefix_caching = !no_enable_prefix_caching;
  options.async_scheduling = async_scheduling ? 1 : 0;
  options.log_callback = &log_line;
  options.log_user_data = this;
  Engine engine(bundle, options);
  if (!nlohmann::json::parse(engine.info_json())["has_model"].get<bool>()) {
    throw Error(PINFER_FAILED_PRECONDITION, bundle + ": the bundle holds no model");
  }
  return engine;
}

void SamplingFlags::add_to(CLI::App* command) {
  const std::string group = "Sampling (default: the model's settings)";
  const auto sampling = [&](CLI::Option* option) { option->group(group); };
  sampling(
      command->add_option("-n,--max-tokens", max_tokens,
                          "Most tokens to generate (0, the default: the rest of the context)"));
  sampling(command->add_option("--min-tokens", min_tokens, "No end before this many tokens"));
  sampling(command->add_option("--temperature", temperature, "0: always the best token"));
  sampling(command->add_option("--top-k", top_k, "Sample among the best K (0: all)"));
  sampling(
      command->add_option("--top-p", top_p, "Sample among the best that have this probability"));
  sampling(
      command->add_option("--min-p", min_p, "Least probability, relative to the best token's"));
  sampling(command->add_option("--presence-penalty", presence_penalty, "-2 to 2"));
  sampling(command->add_option("--frequency-penalty", frequency_penalty, "-2 to 2"));
  sampling(command->add_option("--repetition-penalty", repetition_penalty, "1: off"));
  sampling(command->add_option("--seed", seed, "Seed of the random stream (default: random)"));
  sampling(command->add_option("--stop", stop, "End at this text (repeatable)")
               ->allow_extra_args(false));
  command->add_flag("--ignore-eos", ignore_eos, "Go on after the model's end token")->group(group);
}

SamplingParams SamplingFlags::params(const Engine& engine) const {
  SamplingParams params = engine.default_sampling_params();
  params.max_tokens = max_tokens.value_or(0);
  params.min_tokens = min_tokens.value_or(0);
  params.temperature = temperature.value_or(params.temperature);
  params.top_k = top_k.value_or(params.top_k);
  params.top_p = top_p.value_or(params.top_p);
  params.min_p = min_p.value_or(params.min_p);
  params.presence_penalty = presence_penalty.value_or(params.presence_penalty);
  params.frequency_penalty = frequency_penalty.value_or(params.frequency_penalty);
  params.repetition_penalty = repetition_penalty.value_or(params.repetition_penalty);
  params.has_seed = seed.has_value();
  params.seed = seed.value_or(0);
  params.ignore_eos = ignore_eos;
  params.stop_strings = stop;
  return params;
}

}  // namespace pinfer::cli
