// `pinfer bench`: prefill and decode rates of a bundle on this machine.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/json_lines.h"

namespace pinfer::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct BenchFlags {
  EngineFlags engine;
  std::vector<int32_t> prompt_tokens = {32, 512};
  int32_t output_tokens = 128;
  std::vector<int32_t> batch = {1};
  int32_t repetitions = 5;
  bool json = false;
};

struct Rates {
  std::vector<double> prefill, decode;  // tokens per second, one for each repetition
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double stddev(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  double sum = 0;
  for (const double value : values) sum += (value - mean(values)) * (value - mean(values));
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

// Ids in no order; the same in every run.
std::vector<int32_t> make_prompt(int32_t num_tokens, int32_t vocab_size, uint32_t seed) {
  std::vector<int32_t> ids;
  uint32_t state = seed * 2654435761u + 1;
  for (int32_t i = 0; i < num_tokens; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size)));
  }
  return ids;
}

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// `batch` prompts at once: until every one has its first token, then until the end.
void measure(Engine& engine, int32_t prompt_tokens, int32_t output_tokens, int32_t batch,
             uint32_t seed, Rates* rates) {
  const auto info = Json::parse(engine.info_json());
  SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = output_tokens;
  params.min_tokens = output_tokens;
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < batch; ++i) {
    prompts.push_back(make_prompt(prompt_tokens, info["tokenizer_vocab_size"].get<int32_t>(),
                                  seed * 4096 + static_cast<uint32_t>(i)));
  }
  std::vector<Request> requests;
  const Clock::time_point begin = Clock::now();
  for (const std::vector<int32_t>& prompt : prompts) {
    requests.push_back(engine.submit(prompt, params));
  }
  int64_t num_first = 0, num_tokens = 0;
  for (Request& request : requests) {
    const std::optional<Output> piece = request.next();
    if (piece.has_value()) num_first += static_cast<int64_t>(piece->token_ids.size());
  }
  const Clock::time_point first = Clock::now();
  for (Request& request : requests) {
    const Output rest = request.wait();
    if (rest.finish_reason == "error") throw Error(PINFER_INTERNAL, rest.error_message);
    num_tokens += static_cast<int64_t>(rest.token_ids.size());
  }
  const Clock::time_point end = Clock::now();
  if (num_first + num_tokens != int64_t{batch} * output_tokens) {
    throw Error(PINFER_INTERNAL, "bench: requests ended early");
  }
  rates->prefill.push_back(prompt_tokens * batch / seconds(first - begin));
  if (num_tokens > 0) {
    rates->decode.push_back(static_cast<double>(num_tokens) / seconds(end - first));
  } else if (output_tokens > 1) {  // a model so small that everything came at once
    rates->decode.push_back(static_cast<double>(num_first) / seconds(end - begin));
  }
}

Json entry(const char* test, int32_t prompt_tokens, int32_t output_tokens, int32_t batch,
           const std::vector<double>& rates) {
  const auto rounded = [](double value) { return std::round(value * 100) / 100; };
  return {
      {"test", test},   {"prompt_tokens", prompt_tokens},       {"output_tokens", output_tokens},
      {"batch", batch}, {"tokens_per_s", rounded(mean(rates))}, {"stddev", rounded(stddev(rates))}};
}

void print_markdown(const Json& results) {
  std::printf("| test | prompt | output | batch | tokens/s | stddev |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const Json& result : results) {
    std::printf("| %s | %d | %d | %d | %.1f | %.1f |\n", result["test"].get<std::string>().c_str(),
                result["prompt_tokens"].get<int>(), result["output_tokens"].get<int>(),
                result["batch"].get<int>(), result["tokens_per_s"].get<double>(),
                result["stddev"].get<double>());
  }
}

void bench(BenchFlags& flags) {
  flags.engine.no_enable_prefix_caching = true;  // a prompt that repeats would cost nothing
  Engine engine = flags.engine.open();
  Json results = Json::array();
  for (const int32_t batch : flags.batch) {
    for (const int32_t prompt_tokens : flags.prompt_tokens) {
      Rates rates, warm_up;
      measure(engine, prompt_tokens, std::min(flags.output_tokens, 8), batch, 0, &warm_up);
      for (int32_t i = 1; i <= flags.repetitions; ++i) {
        measure(engine, prompt_tokens, flags.output_tokens, batch, static_cast<uint32_t>(i),
                &rates);
      }
      results.push_back(entry("prefill", prompt_tokens, 1, batch, rates.prefill));
      if (!rates.decode.empty()) {
        results.push_back(entry("decode", prompt_tokens, flags.output_tokens, batch, rates.decode));
      }
    }
  }
  if (flags.json) {
    std::printf("%s\n", results.dump(1).c_str());
  } else {
    print_markdown(results);
  }
}

}  // namespace

void add_bench_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app->add_subcommand("bench", "Measure prefill and decode rates");
  flags->engine.add_to(command);
  command->add_option("--prompt-tokens", flags->prompt_tokens, "Prompt lengths, comma-separated")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--output-tokens", flags->output_tokens, "Tokens to generate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--batch", flags->batch, "Requests at once, comma-separated")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--repetitions", flags->repetitions, "Measurements of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print a JSON list instead of a table");
  command->callback([flags, exit_code] {
    bench(*flags);
    *exit_code = kExitDone;
  });
}

}  // namespace pinfer::cli
