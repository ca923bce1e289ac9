// `pinfer bench`: prefill and decode rates of a bundle on this machine.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
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
  std::vector<int32_t> output_tokens = {128};
  std::vector<int32_t> batch = {1};
  std::vector<int32_t> depth = {0};
  std::vector<int32_t> threads = {0};
  int32_t repetitions = 5;
  bool json = false;
};

// One point of a sweep: `batch` requests at once, each a prompt behind a context of `depth` tokens.
struct Point {
  int32_t depth, batch, prompt_tokens, output_tokens;
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

// Throws Error where the engine could not run the requests of a point all at once.
void check_fits(const Json& info, const Point& point) {
  const int64_t length = int64_t{point.depth} + point.prompt_tokens + point.output_tokens;
  const int64_t block_size = info["block_size"].get<int64_t>();
  const int64_t blocks = point.batch * ((length + block_size - 1) / block_size);
  const auto check = [&](int64_t wanted, const char* what, const char* flag, int64_t most) {
    if (wanted <= most) return;
    throw Error(PINFER_INVALID_ARGUMENT,
                "bench: " + std::to_string(point.batch) + " x (" + std::to_string(point.depth) +
                    " + " + std::to_string(point.prompt_tokens) + " + " +
                    std::to_string(point.output_tokens) + ") tokens: " + std::to_string(wanted) +
                    " " + what + ", " + flag + " allows " + std::to_string(most));
  };
  check(length, "tokens in a request", "--max-model-len", info["max_model_len"].get<int64_t>());
  check(point.batch, "requests at once", "--max-num-seqs", info["max_num_seqs"].get<int64_t>());
  check(blocks, "cache blocks", "--num-blocks", info["num_blocks"].get<int64_t>() - 1);
}

// The context of each request of a batch stays the same from run to run, so that all runs but the
// first find it in the prefix cache; the prompt behind it is new every time.
std::vector<std::vector<int32_t>> make_prompts(const Point& point, int32_t vocab_size,
                                               uint32_t seed) {
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < point.batch; ++i) {
    std::vector<int32_t> ids = make_prompt(point.depth, vocab_size, static_cast<uint32_t>(i));
    const std::vector<int32_t> prompt =
        make_prompt(point.prompt_tokens, vocab_size, seed * 4096 + static_cast<uint32_t>(i));
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

// Until every request has its first token, then until the end. Returns how many prompt tokens the
// prefix cache supplied.
int64_t measure(Engine& engine, const Json& info, const Point& point, uint32_t seed, Rates* rates) {
  SamplingParams params;
  params.temperature = 0;
  params.ignore_eos = true;
  params.max_tokens = point.output_tokens;
  params.min_tokens = point.output_tokens;
  const std::vector<std::vector<int32_t>> prompts =
      make_prompts(point, info["tokenizer_vocab_size"].get<int32_t>(), seed);
  std::vector<Request> requests;
  const Clock::time_point begin = Clock::now();
  for (const std::vector<int32_t>& prompt : prompts) {
    requests.push_back(engine.submit(prompt, params));
  }
  int64_t num_cached = 0, num_first = 0, num_rest = 0;
  const auto count = [](const Output& piece) {
    if (piece.finish_reason == "error") throw Error(PINFER_INTERNAL, piece.error_message);
    return static_cast<int64_t>(piece.token_ids.size());
  };
  for (Request& request : requests) {
    const std::optional<Output> piece = request.next();
    if (!piece.has_value()) continue;
    num_first += count(*piece);
    num_cached += piece->num_cached_tokens;
  }
  const Clock::time_point all_first = Clock::now();
  // Requests that were ready before the last one have more by now, which is no decode of a batch.
  for (Request& request : requests) {
    while (const std::optional<Output> piece = request.next(0)) num_first += count(*piece);
  }
  const Clock::time_point decode_begin = Clock::now();
  for (Request& request : requests) num_rest += count(request.wait());
  const Clock::time_point end = Clock::now();
  if (num_first + num_rest != int64_t{point.batch} * point.output_tokens) {
    throw Error(PINFER_INTERNAL, "bench: requests ended early");
  }
  const int64_t num_prompt = int64_t{point.batch} * (point.depth + point.prompt_tokens);
  rates->prefill.push_back(static_cast<double>(num_prompt - num_cached) /
                           seconds(all_first - begin));
  if (num_rest > 0) {
    rates->decode.push_back(static_cast<double>(num_rest) / seconds(end - decode_begin));
  } else if (point.output_tokens > 1) {  // a model so small that everything came at once
    rates->decode.push_back(static_cast<double>(num_first) / seconds(end - begin));
  }
  return num_cached;
}

// A run that warms up and fills the cache with the context, and those that count. No two runs of
// an engine have the same *seed.
Rates measure_all(Engine& engine, const Json& info, const Point& point, int32_t repetitions,
                  uint32_t* seed) {
  Rates rates, warm_up;
  Point first = point;
  first.output_tokens = std::min(point.output_tokens, 8);
  measure(engine, info, first, ++*seed, &warm_up);
  const int32_t block_size = info["block_size"].get<int32_t>();
  const int64_t context = int64_t{point.batch} * (point.depth / block_size * block_size);
  for (int32_t i = 0; i < repetitions; ++i) {
    if (measure(engine, info, point, ++*seed, &rates) < context) {
      throw Error(PINFER_RESOURCE_EXHAUSTED, "bench: the cache lost a context of " +
                                                 std::to_string(point.depth) +
                                                 " tokens; give it more blocks (--num-blocks)");
    }
  }
  return rates;
}

Json entry(const char* test, const Point& point, int32_t output_tokens, const Json& info,
           const std::vector<double>& rates) {
  const auto rounded = [](double value) { return std::round(value * 100) / 100; };
  return {{"test", test},
          {"prompt_tokens", point.prompt_tokens},
          {"output_tokens", output_tokens},
          {"batch", point.batch},
          {"depth", point.depth},
          {"threads", info["threads"]},
          {"tokens_per_s", rounded(mean(rates))},
          {"stddev", rounded(stddev(rates))}};
}

void print_markdown(const Json& results) {
  std::printf("| test | prompt | output | batch | depth | threads | tokens/s | stddev |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const Json& result : results) {
    const auto number = [&result](const char* name) { return result[name].get<int>(); };
    std::printf("| %s | %d | %d | %d | %d | %d | %.1f | %.1f |\n",
                result["test"].get<std::string>().c_str(), number("prompt_tokens"),
                number("output_tokens"), number("batch"), number("depth"), number("threads"),
                result["tokens_per_s"].get<double>(), result["stddev"].get<double>());
  }
}

// Everything that shares an engine: one number of threads, one depth. A context comes from the
// prefix cache; without one the cache is off, since a prompt that repeats would cost nothing.
void sweep(BenchFlags& flags, int32_t threads, int32_t depth, Json* results) {
  flags.engine.options.threads = threads;
  flags.engine.no_enable_prefix_caching = depth == 0;
  Engine engine = flags.engine.open();
  const Json info = Json::parse(engine.info_json());
  const auto for_each_point = [&](const auto& call) {
    for (const int32_t batch : flags.batch) {
      for (const int32_t prompt_tokens : flags.prompt_tokens) {
        for (const int32_t output_tokens : flags.output_tokens) {
          call(Point{depth, batch, prompt_tokens, output_tokens});
        }
      }
    }
  };
  for_each_point([&](const Point& point) { check_fits(info, point); });
  uint32_t seed = 0;
  for_each_point([&](const Point& point) {
    const Rates rates = measure_all(engine, info, point, flags.repetitions, &seed);
    if (point.output_tokens == flags.output_tokens.front()) {
      results->push_back(entry("prefill", point, 1, info, rates.prefill));
    }
    if (!rates.decode.empty()) {
      results->push_back(entry("decode", point, point.output_tokens, info, rates.decode));
    }
  });
}

void bench(BenchFlags& flags) {
  Json results = Json::array();
  for (const int32_t threads : flags.threads) {
    for (const int32_t depth : flags.depth) sweep(flags, threads, depth, &results);
  }
  if (flags.json) {
    std::printf("%s\n", results.dump(1).c_str());
  } else {
    print_markdown(results);
  }
}

constexpr size_t kMostValues = 1000;  // of one flag

// "8", "1-4" (every number), "1-8+2" (steps of 2) or "32-512*2" (doubling), as llama-bench has
// them, onto the list. False for anything else.
bool append_range(std::string_view text, int32_t least, std::vector<int32_t>* values) {
  const auto number = [&text](int32_t* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return *value >= 0;
  };
  int32_t first = 0, step = 1;
  char operation = '+';
  if (!number(&first)) return false;
  int32_t last = first;
  if (text.starts_with('-')) {
    text.remove_prefix(1);
    if (!number(&last)) return false;
    if (text.starts_with('+') || text.starts_with('*')) {
      operation = text.front();
      text.remove_prefix(1);
      if (!number(&step)) return false;
    }
  }
  const bool grows = operation == '+' ? step >= 1 : step >= 2 && first >= 1;
  if (!text.empty() || first < least || last < first || !grows) return false;
  for (int64_t value = first; value <= last; operation == '+' ? value += step : value *= step) {
    if (values->size() == kMostValues) return false;
    values->push_back(static_cast<int32_t>(value));
  }
  return true;
}

void add_list(CLI::App* command, const char* name, const char* description, int32_t least,
              const char* default_text, std::vector<int32_t>* values) {
  const auto parse = [name, least, values](const std::vector<std::string>& texts) {
    values->clear();
    for (const std::string& text : texts) {
      if (append_range(text, least, values)) continue;
      throw CLI::ValidationError(
          name, "expected N, N-M, N-M+STEP or N-M*FACTOR of whole numbers from " +
                    std::to_string(least) + ", at most " + std::to_string(kMostValues) +
                    " in all, found \"" + text + "\"");
    }
  };
  command->add_option_function<std::vector<std::string>>(name, parse, description)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->default_str(default_text);
}

}  // namespace

void add_bench_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app->add_subcommand("bench", "Measure prefill and decode rates");
  flags->engine.add_to(command);
  command->remove_option(command->get_option("--threads"));
  add_list(command, "--prompt-tokens", "Prompt lengths", 1, "32,512", &flags->prompt_tokens);
  add_list(command, "--output-tokens", "Tokens to generate", 1, "128", &flags->output_tokens);
  add_list(command, "--batch", "Requests at once", 1, "1", &flags->batch);
  add_list(command, "--depth", "Tokens of context, computed before, that the prompts stand behind",
           0, "0", &flags->depth);
  add_list(command, "--threads", "Compute threads (0: as without --threads in other commands)", 0,
           "0", &flags->threads);
  command->footer(
      "A LIST has commas between numbers and ranges: 1-8 (every number), 1-8+2 (steps of 2),\n"
      "32-512*2 (doubling).");
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
