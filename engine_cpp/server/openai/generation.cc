#include "server/openai/generation.h"

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

namespace pinfer::server {
namespace {

template <typename T>
void append(const std::vector<T>& more, std::vector<T>* all) {
  all->insert(all->end(), more.begin(), more.end());
}

void append(const Output& piece, Output* all) {
  all->text += piece.text;
  append(piece.token_ids, &all->token_ids);
  append(piece.logprobs, &all->logprobs);
  append(piece.prompt_logprobs, &all->prompt_logprobs);
  all->finish_reason = piece.finish_reason;
  all->error_message = piece.error_message;
  all->num_prompt_tokens = piece.num_prompt_tokens;
  all->num_cached_tokens = piece.num_cached_tokens;
  all->queue_ms = piece.queue_ms;
  all->prefill_ms = piece.prefill_ms;
  all->decode_ms = piece.decode_ms;
}

}  // namespace

Json Usage::json() const {
  return {{"prompt_tokens", num_prompt_tokens},
          {"completion_tokens", num_output_tokens},
          {"total_tokens", num_prompt_tokens + num_output_tokens},
          {"prompt_tokens_details", {{"cached_tokens", num_cached_tokens}}}};
}

Generation::Generation(std::shared_ptr<Engine> engine, std::shared_ptr<Exchange> exchange,
                       std::shared_ptr<ServerMetrics> metrics, GenerationPlan plan,
                       std::unique_ptr<AnswerFormat> format, boost::asio::any_io_executor executor)
    : engine_(std::move(engine)),
      exchange_(std::move(exchange)),
      metrics_(std::move(metrics)),
      plan_(std::move(plan)),
      format_(std::move(format)),
      strand_(boost::asio::make_strand(std::move(executor))) {}

Generation::~Generation() = default;

void Generation::start() {
  boost::asio::post(strand_, [self = shared_from_this()] {
    try {
      self->submit();
    } catch (const std::exception& error) {
      self->fail(from_engine_error(error, self->plan_.param_of_prompt), "error");
      self->requests_.clear();
    }
  });
}

// The requests' callbacks keep the generation alive, which owns the requests: finish_all() unties
// this. Pieces wait for the strand, so that none is received before all are submitted.
void Generation::submit() {
  const auto n = static_cast<size_t>(plan_.options.num_choices);
  const size_t num_choices = plan_.prompts.size() * n;
  const auto self = shared_from_this();
  has_begun_.resize(num_choices);
  choices_.resize(num_choices);
  requests_.reserve(num_choices);
  for (size_t i = 0; i < num_choices; ++i) {
    choices_[i].index = static_cast<int>(i);
    choices_[i].prompt_index = i / n;
    SubmitOptions options;
    options.priority = plan_.options.priority;
    options.cache_salt = plan_.options.cache_salt;
    options.choice_index = static_cast<int32_t>(i % n);
    options.callback = [self, i](const Output& piece) {
      boost::asio::post(self->strand_, [self, i, piece] { self->receive(i, piece); });
    };
    requests_.push_back(engine_->submit(plan_.prompts[i / n], plan_.params, std::move(options)));
  }
  exchange_->on_cancel([self] { boost::asio::post(self->strand_, [self] { self->abort(); }); });
}

void Generation::receive(size_t i, const Output& piece) {
  try {
    if (!ended_) word(i, piece);
    if (piece.finished()) finish(i);
  } catch (const std::exception& error) {  // out of memory
    fail(ApiError(500, error.what()), "error");
  }
}

void Generation::word(size_t i, const Output& piece) {
  Choice& choice = choices_[i];
  append(piece, &choice.output);
  if (piece.finish_reason == "error") {
    fail(ApiError(500, piece.error_message), "error");
  } else if (piece.finish_reason == "abort") {
    fail(ApiError(503, "the request was aborted: the server is shutting down"), "abort");
  } else if (plan_.options.stream) {
    send_events(i, piece);
  }
}

void Generation::send_events(size_t i, const Output& piece) {
  if (!events_started_) {
    events_started_ = true;
    exchange_->start_events();
  }
  const bool is_first = !has_begun_[i];
  std::vector<Json> events = format_->events(choices_[i], piece, is_first);
  if (!events.empty()) has_begun_[i] = true;
  for (Json& event : events) send_event_of(Json::array({std::move(event)}), nullptr);
}

void Generation::send_event_of(Json choices, Json usage, bool with_timings) {
  Json event = format_->header(/*stream=*/true);
  event["choices"] = std::move(choices);
  // Asked for: null in every event but the last.
  if (plan_.options.include_usage) event["usage"] = std::move(usage);
  if (with_timings) event["timings"] = timings();
  exchange_->send_event(to_json_text(event));
}

void Generation::finish(size_t i) {
  const Output& output = choices_[i].output;
  FinishedChoice finished;
  finished.finish_reason = output.finish_reason.empty() ? "abort" : output.finish_reason;
  finished.num_prompt_tokens = output.num_prompt_tokens;
  finished.num_output_tokens = static_cast<int>(output.token_ids.size());
  finished.num_choices = plan_.options.num_choices;
  finished.max_tokens = plan_.params.max_tokens;
  finished.queue_ms = output.queue_ms;
  finished.prefill_ms = output.prefill_ms;
  finished.decode_ms = output.decode_ms;
  metrics_->add(finished);
  if (++num_finished_ == choices_.size()) finish_all();
}

void Generation::finish_all() {
  if (!ended_) {
    ended_ = true;
    const Usage total = usage();
    const Output& first = choices_[0].output;
    exchange_->set_notes({.num_prompt_tokens = static_cast<int>(total.num_prompt_tokens),
                          .num_output_tokens = static_cast<int>(total.num_output_tokens),
                          .queue_ms = first.queue_ms,
                          .prefill_ms = first.prefill_ms,
                          .decode_ms = first.decode_ms,
                          .finish_reason = first.finish_reason});
    if (plan_.options.stream) {
      if (plan_.options.include_usage || plan_.options.timings) {
        send_event_of(Json::array(), total.json(), plan_.options.timings);
      }
      exchange_->send_event("[DONE]");
      exchange_->end_events();
    } else {
      Json answer = format_->header(/*stream=*/false);
      Json list = Json::array();
      for (const Choice& choice : choices_) list.push_back(format_->whole(choice));
      answer["choices"] = std::move(list);
      answer["usage"] = total.json();
      if (plan_.options.timings) answer["timings"] = timings();
      exchange_->respond({.body = to_json_text(answer)});
    }
  }
  exchange_->forget_cancel();
  requests_.clear();
}

// The whole request ends with this error; what its other choices still produce is dropped.
void Generation::fail(const ApiError& error, const std::string& finish_reason) {
  if (std::exchange(ended_, true)) return;
  const Usage total = usage();
  exchange_->set_notes({.num_prompt_tokens = static_cast<int>(total.num_prompt_tokens),
                        .num_output_tokens = static_cast<int>(total.num_output_tokens),
                        .finish_reason = finish_reason});
  if (events_started_) {
    exchange_->send_event(error.body());
    exchange_->end_events();
  } else {
    exchange_->respond(error.response());
  }
  abort();
}

void Generation::abort() {
  for (Request& request : requests_) request.abort();
}

Usage Generation::usage() const {
  Usage usage;
  size_t next_prompt = 0;
  for (const Choice& choice : choices_) {
    if (!plan_.leaves_output_out) {
      usage.num_output_tokens += static_cast<int64_t>(choice.output.token_ids.size());
    }
    if (choice.prompt_index != next_prompt) continue;  // each prompt counts once
    ++next_prompt;
    usage.num_prompt_tokens += choice.output.num_prompt_tokens;
    usage.num_cached_tokens += choice.output.num_cached_tokens;
  }
  return usage;
}

Json Generation::timings() const {
  const Output& output = choices_[0].output;
  const size_t num_decoded = output.token_ids.empty() ? 0 : output.token_ids.size() - 1;
  const double seconds = output.decode_ms / 1000;
  return {{"queue_ms", output.queue_ms},
          {"prefill_ms", output.prefill_ms},
          {"decode_ms", output.decode_ms},
          {"decode_tokens_per_s", seconds > 0 ? static_cast<double>(num_decoded) / seconds : 0.0}};
}

}  // namespace pinfer::server
