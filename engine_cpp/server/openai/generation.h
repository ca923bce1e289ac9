// A request of the completions or chat endpoint while it runs: every prompt `n` times through the
// engine, each piece of output worded and sent, or all of it at the end.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"
#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/openai/json_body.h"
#include "server/openai/sampling_fields.h"
#include "server/server_metrics.h"

namespace pinfer::server {

// What has come of one choice.
struct Choice {
  int index = 0;
  size_t prompt_index = 0;
  Output output;  // pieces put together
  std::vector<int32_t> stop_token_ids;
};

struct Usage {
  int64_t num_prompt_tokens = 0, num_output_tokens = 0, num_cached_tokens = 0;
  Json json() const;
};

// How an endpoint words what is generated. Called on one thread at a time.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // The object without choices and usage: {"id", "object", "created", "model"}.
  virtual Json header(bool stream) const = 0;
  // The entry of `choices` for the whole answer.
  virtual Json whole(const Choice& choice) const = 0;
  // Entries of `choices` of the events that a piece makes; `is_first` of its choice.
  virtual std::vector<Json> events(const Choice& choice, const Output& piece, bool is_first) = 0;
};

// What the engine is asked.
struct GenerationPlan {
  std::vector<std::vector<int32_t>> prompts;
  SamplingParams params;
  AnswerOptions options;
  bool leaves_output_out = false;  // what is sampled is not part of the answer
  std::string param_of_prompt;     // the field that a prompt that is too long stands in
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // `executor`: where outputs are worded; the generation makes a strand of it.
  Generation(std::shared_ptr<Engine> engine, std::shared_ptr<Exchange> exchange,
             std::shared_ptr<ServerMetrics> metrics, GenerationPlan plan,
             std::unique_ptr<AnswerFormat> format, boost::asio::any_io_executor executor);
  ~Generation();

  // Hands the requests to the engine and answers the exchange as they produce output; with an error
  // if the engine refuses one of them. Returns at once.
  void start();

 private:
  void submit();
  void receive(size_t choice, const Output& piece);
  void word(size_t choice, const Output& piece);
  void send_events(size_t choice, const Output& piece);
  void finish(size_t choice);
  void finish_all();
  void fail(const ApiError& error, const std::string& finish_reason);
  void abort();
  void send_event_of(Json choices, Json usage, bool with_timings = false);
  Usage usage() const;
  Json timings() const;

  const std::shared_ptr<Engine> engine_;
  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<ServerMetrics> metrics_;
  const GenerationPlan plan_;
  const std::unique_ptr<AnswerFormat> format_;
  const boost::asio::any_io_executor strand_;

  // Touched in the strand only.
  std::vector<Choice> choices_;
  std::vector<Request> requests_;
  std::vector<bool> has_begun_;
  size_t num_finished_ = 0;
  bool events_started_ = false;
  bool ended_ = false;
};

}  // namespace pinfer::server
