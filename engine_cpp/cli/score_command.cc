// `pinfer score`: JSON lines of token ids, log-probabilities out.
#include <CLI/CLI.hpp>
#include <cmath>

#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/request_lines.h"

namespace pinfer::cli {
namespace {

constexpr int64_t kMaxInteger = INT32_MAX;

// JSON has no infinity.
Json to_json(double logprob) { return std::isfinite(logprob) ? Json(logprob) : Json(nullptr); }

Json top_to_json(const TokenLogprobs& token) {
  Json list = Json::array();
  for (const auto& [id, logprob] : token.top) {
    list.push_back(Json::array({id, to_json(logprob)}));
  }
  return list;
}

Json answer(Request request) {
  const Output output = request.wait();
  if (output.finish_reason == "error") return error_answer(output.error_message);
  Json logprobs = Json::array({nullptr}), top = Json::array({nullptr});
  for (const TokenLogprobs& token : output.prompt_logprobs) {
    logprobs.push_back(to_json(token.logprob));
    top.push_back(top_to_json(token));
  }
  // What would come next.
  for (const TokenLogprobs& token : output.logprobs) top.push_back(top_to_json(token));
  return {{"logprobs", logprobs}, {"top", top}};
}

// in: {"ids": [int], "top": k}
WaitForAnswer begin(Engine& engine, const Json& line) {
  if (!line.is_object()) throw Error(PINFER_INVALID_ARGUMENT, "expected an object with ids");
  refuse_unknown_fields(line, {"ids", "top"});
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 1;
  params.prompt_logprobs =
      line.contains("top") ? static_cast<int32_t>(integer_field(line, "top", 0, kMaxInteger)) : 0;
  params.logprobs = params.prompt_logprobs;
  auto request = std::make_shared<Request>(engine.submit(ids_field(line, "ids"), params));
  return [request] { return answer(std::move(*request)); };
}

}  // namespace

void add_score_command(CLI::App* app, int* exit_code) {
  auto flags = std::make_shared<EngineFlags>();
  CLI::App* command =
      app->add_subcommand("score", "JSON lines: token ids to log-probabilities of each");
  flags->add_to(command);
  command->callback([flags, exit_code] {
    Engine engine = flags->open();
    answer_request_lines([&](const Json& line) { return begin(engine, line); });
    *exit_code = kExitDone;
  });
}

}  // namespace pinfer::cli
