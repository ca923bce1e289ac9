#include "engine/output_processor.h"

#include <algorithm>

namespace pinfer {
namespace {

double milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

OutputProcessor::OutputProcessor(const Tokenizer& tokenizer, std::vector<int32_t> eos_token_ids,
                                 std::function<void(const std::string&)> stop_request)
    : tokenizer_(tokenizer),
      eos_token_ids_(std::move(eos_token_ids)),
      stop_request_(std::move(stop_request)),
      thread_([this] { run(); }) {}

OutputProcessor::~OutputProcessor() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void OutputProcessor::add_request(const std::string& request_id,
                                  std::vector<int32_t> prompt_token_ids, const TextOptions& options,
                                  bool ignore_eos, std::vector<int32_t> stop_token_ids,
                                  std::shared_ptr<RequestStream> stream) {
  auto state =
      std::make_unique<State>(tokenizer_, std::move(prompt_token_ids), options.skip_special_tokens);
  if (!options.stop.empty()) {
    state->stop =
        std::make_unique<StopStringMatcher>(options.stop, options.include_stop_str_in_output);
  }
  state->num_tokens_before_stop = options.min_tokens;
  state->ignore_eos = ignore_eos;
  state->stop_token_ids = std::move(stop_token_ids);
  state->stream = std::move(stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  states_.emplace(request_id, std::move(state));
}

void OutputProcessor::note_started(std::span<const std::string> request_ids,
                                   Clock::time_point time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const std::string& request_id : request_ids) {
    const auto entry = states_.find(request_id);
    if (entry != states_.end()) entry->second->started = time;
  }
}

void OutputProcessor::push(std::vector<RequestOutput> outputs, const std::string& error_message) {
  if (outputs.empty()) return;
  const Clock::time_point now = Clock::now();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (RequestOutput& output : outputs) {
      queue_.push_back({std::move(output), error_message, now});
    }
  }
  changed_.notify_one();
}

void OutputProcessor::abort_all() {
  std::vector<RequestOutput> outputs;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, state] : states_) {
      RequestOutput& output = outputs.emplace_back();
      output.request_id = id;
      output.finish_reason = "abort";
    }
  }
  push(std::move(outputs));
}

size_t OutputProcessor::num_requests() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return states_.size();
}

bool OutputProcessor::wait_until_empty(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto empty = [this] { return states_.empty(); };
  if (timeout.count() < 0) {
    emptied_.wait(lock, empty);
    return true;
  }
  return emptied_.wait_for(lock, timeout, empty);
}

void OutputProcessor::run() {
  for (;;) {
    Item item;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    deliver(std::move(item));
  }
}

RequestTimes OutputProcessor::times_of(State& state, const Item& item) const {
  RequestTimes times;
  if (!state.started.has_value()) {
    times.queue_ms = milliseconds(item.time - state.arrival);
    return times;
  }
  times.queue_ms = milliseconds(*state.started - state.arrival);
  if (!state.first_token.has_value() && !item.output.new_token_ids.empty()) {
    state.first_token = item.time;
  }
  times.prefill_ms = milliseconds(state.first_token.value_or(item.time) - *state.started);
  if (state.first_token.has_value()) {
    times.decode_ms = milliseconds(item.time - *state.first_token);
  }
  return times;
}

void OutputProcessor::deliver(Item item) {
  RequestOutput& output = item.output;
  StreamOutput piece;
  State* state = nullptr;
  {
    // States are only removed below, on this thread: the pointer stays valid without the lock.
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto entry = states_.find(output.request_id);
    if (entry == states_.end()) return;  // ended by a stop string; the engine was a step ahead
    state = entry->second.get();
    piece.times = times_of(*state, item);
  }
  piece.num_prompt_tokens = static_cast<int32_t>(state->prompt.size());
  piece.num_cached_tokens = output.num_cached_tokens;
  piece.prompt_logprobs = std::move(output.prompt_logprobs);
  piece.embedding = std::move(output.embedding);
  bool stopped = false;
  for (size_t i = 0; i < output.new_token_ids.size() && !stopped; ++i) {
    piece.token_ids.push_back(output.new_token_ids[i]);
    piece.text += text_of(*state, output, i, &stopped);
    if (i < output.new_logprobs.size()) {
      piece.logprobs.push_back(std::move(output.new_logprobs[i]));
    }
  }
  if (stopped) {
    piece.finish_reason = "stop";
    if (!output.finished()) stop_request_(output.request_id);
  } else if (output.finished()) {
    piece.finish_reason = output.finish_reason;
    std::string rest = state->detokenizer.finish();
    if (state->stop != nullptr) {
      rest = state->stop->add(rest, state->num_tokens_before_stop <= 0) + state->stop->finish();
      if (state->stop->matched().has_value()) piece.finish_reason = "stop";
    }
    piece.text += rest;
    if (piece.finish_reason == "error") piece.error_message = item.error_message;
  }
  const bool finished = piece.finished();
  if (finished || !piece.token_ids.empty() || !piece.prompt_logprobs.empty()) {
    state->stream->push(std::move(piece));
  }
  if (finished) {
    const std::lock_guard<std::mutex> lock(mutex_);
    states_.erase(output.request_id);
    if (states_.empty()) emptied_.notify_all();
  }
}

bool OutputProcessor::hides_text(const State& state, const RequestOutput& output,
                                 size_t index) const {
  // The token that ended the request is counted, but is no text.
  if (output.finish_reason != "stop" || index + 1 != output.new_token_ids.size()) return false;
  const int32_t id = output.new_token_ids[index];
  const auto contains = [id](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  return contains(state.stop_token_ids) || (!state.ignore_eos && contains(eos_token_ids_));
}

std::string OutputProcessor::text_of(State& state, const RequestOutput& output, size_t index,
                                     bool* stopped) const {
  if (hides_text(state, output, index)) return "";
  std::string text = state.detokenizer.add(output.new_token_ids[index]);
  if (state.stop == nullptr) return text;
  const bool may_stop = --state.num_tokens_before_stop < 0;
  text = state.stop->add(text, may_stop);
  *stopped = state.stop->matched().has_value();
  return text;
}

}  // namespace pinfer
