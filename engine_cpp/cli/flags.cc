#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>

namespace pinfer::cli {
namespace {

const std::vector<std::string> kLogLevels = {"debug", "info", "warning", "error"};

// "--max-num-seqs" -> "PINFER_MAX_NUM_SEQS".
std::string environment_name(const std::string& flag) {
  std::string name = "PINFER_";
  for (const char c : flag.substr(flag.rfind("--") + 2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

template <typename T>
CLI::Option* add(CLI::App* command, const std::string& flag, T& target, const std::string& help) {
  return command->add_option(flag, target, help)->envname(environment_name(flag));
}

int level_index(const std::string& name) {
  for (size_t i = 0; i < kLogLevels.size(); ++i) {
    if (kLogLevels[i] == name) return static_cast<int>(i);
  }
  return 0;
}

void log_callback(void* user_data, pinfer_log_level level, const char* message) {
  const auto* flags = static_cast<const EngineFlags*>(user_data);
  if (static_cast<int>(level) >= level_index(flags->log_level)) {
    std::fprintf(stderr, "pinfer: %s: %s\n", kLogLevels[level].c_str(), message);
  }
}

}  // namespace

void add_bundle(CLI::App* command, std::string* bundle) {
  command->add_option("bundle", *bundle, "Bundle directory")->required()->type_name("BUNDLE");
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
  engine(add(command, "--max-model-len", options.max_model_len,
             "Longest context, in tokens (0: the model's)"));
  engine(add(command, "--max-num-seqs", options.max_num_seqs, "Requests running at once"));
  engine(add(command, "--max-num-batched-tokens", options.max_num_batched_tokens,
             "Tokens computed in one step"));
  engine(add(command, "--num-blocks", options.num_blocks,
             "Cache blocks, null block included (0: from free memory)"));
  engine(add(command, "--block-size", options.block_size, "Tokens in a cache block"));
  engine(add(command, "--long-prefill-token-threshold", options.long_prefill_token_threshold,
             "Cap of one request's tokens per step (0: off)"));
  engine(add(command, "--scheduling-policy", scheduling_policy, "fcfs or priority")
             ->check(CLI::IsMember({"fcfs", "priority"})));
  command
      ->add_flag("--no-enable-prefix-caching", no_enable_prefix_caching,
                 "Do not reuse cached prefixes")
      ->envname("PINFER_NO_ENABLE_PREFIX_CACHING")
      ->group(group);
  engine(add(command, "--threads", options.threads,
             "Compute threads (0: OMP_NUM_THREADS, else cgroup quota and affinity)"));
  engine(add(command, "--provider", provider, "native or torch")
             ->check(CLI::IsMember({"native", "torch"})));
  command->add_flag("--verify", options.verify, "Check the hash of every file first")
      ->envname("PINFER_VERIFY")
      ->group(group);
  engine(add(command, "--log-level", log_level, "debug, info, warning or error")
             ->check(CLI::IsMember(kLogLevels)));
}

Engine EngineFlags::open() {
  if (options.threads == 0) {
    const char* threads = std::getenv("OMP_NUM_THREADS");
    if (threads != nullptr) options.threads = std::max(std::atoi(threads), 0);
  }
  options.scheduling_policy = scheduling_policy.c_str();
  options.provider = provider.c_str();
  options.enable_prefix_caching = !no_enable_prefix_caching;
  options.log_callback = &log_callback;
  options.log_user_data = this;
  return Engine(bundle, options);
}

void SamplingFlags::add_to(CLI::App* command) {
  const std::string group = "Sampling (default: the model's settings)";
  const auto sampling = [&](CLI::Option* option) { option->group(group); };
  sampling(add(command, "-n,--max-tokens", max_tokens,
               "Most tokens to generate (default: the rest of the context)"));
  sampling(add(command, "--min-tokens", min_tokens, "No end before this many tokens"));
  sampling(add(command, "--temperature", temperature, "0: always the best token"));
  sampling(add(command, "--top-k", top_k, "Sample among the best K (0: all)"));
  sampling(add(command, "--top-p", top_p, "Sample among the best that have this probability"));
  sampling(add(command, "--min-p", min_p, "Least probability, relative to the best token's"));
  sampling(add(command, "--presence-penalty", presence_penalty, "-2 to 2"));
  sampling(add(command, "--frequency-penalty", frequency_penalty, "-2 to 2"));
  sampling(add(command, "--repetition-penalty", repetition_penalty, "1: off"));
  sampling(add(command, "--seed", seed, "Seed of the random stream (default: random)"));
  sampling(add(command, "--stop", stop, "End at this text (repeatable)"));
  command->add_flag("--ignore-eos", ignore_eos, "Go on after the model's end token")
      ->envname("PINFER_IGNORE_EOS")
      ->group(group);
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
