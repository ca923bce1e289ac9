// pinfer's C++ interface: a header over the C interface (pinfer.h), which is the manual for what
// each call means. Objects own their handles; errors are exceptions of type pinfer::Error.
// Programs without exceptions use the C interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pinfer/pinfer.h"

namespace pinfer {
// Versioned, so that these inline functions never meet other ones in a program.
inline namespace v1 {

class Error : public std::runtime_error {
 public:
  Error(pinfer_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  pinfer_status status() const { return status_; }

 private:
  pinfer_status status_;
};

namespace detail {

// Throws what *error says, and frees it.
inline void check(pinfer_status status, pinfer_error* error) {
  if (status == PINFER_OK) return;
  const std::string message =
      error == nullptr ? pinfer_status_name(status) : pinfer_error_message(error);
  pinfer_error_free(error);
  throw Error(status, message);
}

template <typename Call>
void call(Call&& function) {
  pinfer_error* error = nullptr;
  const pinfer_status status = function(&error);
  check(status, error);
}

struct Free {
  void operator()(void* memory) const { pinfer_free(memory); }
};

template <typename Call>
std::string take_text(Call&& function) {
  char* text = nullptr;
  size_t size = 0;
  call([&](pinfer_error** error) { return function(&text, &size, error); });
  const std::unique_ptr<char, Free> owned(text);
  return std::string(text, size);
}

}  // namespace detail

struct EngineOptions : pinfer_engine_options {
  EngineOptions() { pinfer_engine_options_init(this, sizeof(pinfer_engine_options)); }
};

// Sampling parameters with their lists. Engine::default_sampling_params() gives the model's.
struct SamplingParams : pinfer_sampling_params {
  SamplingParams() { pinfer_sampling_params_init(this, sizeof(pinfer_sampling_params)); }
  std::vector<int32_t> stop_tokens;
  std::vector<std::string> stop_strings;
  std::vector<std::pair<int32_t, double>> logit_biases;  // token id, what is added to its logit
  std::vector<int32_t> allowed_tokens;                   // none = every id
  std::vector<std::string> bad_word_strings;             // never completed
};

// At one position: of the token that stands there, and of the best ones, best first.
struct TokenLogprobs {
  double logprob = 0;
  std::vector<std::pair<int32_t, double>> top;
};

// A piece of output.
struct Output {
  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<TokenLogprobs> logprobs;         // one for each token id, if asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of the next prompt tokens, if asked for
  std::vector<float> embedding;                // with the last piece of Engine::embed()'s request
  std::string finish_reason;                   // "" while it goes on
  std::string error_message;
  int32_t num_prompt_tokens = 0;
  int32_t num_cached_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
  bool finished() const { return !finish_reason.empty(); }
};

// A submitted request. Movable; aborts when destroyed before its end. May outlive the engine.
class Request {
 public:
  using Callback = std::function<void(Output)>;

  explicit Request(pinfer_request* request, std::unique_ptr<Callback> callback = nullptr)
      : callback_(std::move(callback)), request_(request) {}
  Request(Request&&) = default;
  Request& operator=(Request&& other) noexcept {
    request_ = std::move(other.request_);  // ends the old request before its callback
    callback_ = std::move(other.callback_);
    return *this;
  }

  // Waits for new output; none if timeout_ms (-1: no limit) passed, or after the last piece.
  // REQUIRES: the request has no callback.
  std::optional<Output> next(int64_t timeout_ms = -1) {
    pinfer_output output{};
    const pinfer_status status =
        pinfer_request_next(request_.get(), timeout_ms, &output, sizeof(output));
    if (status == PINFER_TIMED_OUT || status == PINFER_ENDED) return std::nullopt;
    if (status != PINFER_OK) throw Error(status, pinfer_status_name(status));
    return read_output(output);
  }

  // A copy of what the C interface gave out.
  static Output read_output(const pinfer_output& output) {
    Output piece;
    piece.text.assign(output.text, output.text_size);
    piece.token_ids.assign(output.token_ids, output.token_ids + output.num_token_ids);
    piece.logprobs = read_logprobs(output.logprobs, output.num_logprobs);
    piece.prompt_logprobs = read_logprobs(output.prompt_logprobs, output.num_prompt_logprobs);
    piece.embedding.assign(output.embedding, output.embedding + output.num_embedding);
    if (output.finish_reason != nullptr) piece.finish_reason = output.finish_reason;
    if (output.error_message != nullptr) piece.error_message = output.error_message;
    piece.num_prompt_tokens = output.num_prompt_tokens;
    piece.num_cached_tokens = output.num_cached_tokens;
    piece.queue_ms = output.queue_ms;
    piece.prefill_ms = output.prefill_ms;
    piece.decode_ms = output.decode_ms;
    return piece;
  }

  // The C interface's callback, of a Callback.
  static void call_back(void* callback, const pinfer_output* output) {
    (*static_cast<Callback*>(callback))(read_output(*output));
  }

  // Waits for the end and returns everything that has not been read yet.
  Output wait() {
    Output all;
    while (std::optional<Output> piece = next()) {
      all.text += piece->text;
      append(piece->token_ids, &all.token_ids);
      append(piece->logprobs, &all.logprobs);
      append(piece->prompt_logprobs, &all.prompt_logprobs);
      append(piece->embedding, &all.embedding);
      all.finish_reason = piece->finish_reason;
      all.error_message = piece->error_message;
      all.num_prompt_tokens = piece->num_prompt_tokens;
      all.num_cached_tokens = piece->num_cached_tokens;
      all.queue_ms = piece->queue_ms;
      all.prefill_ms = piece->prefill_ms;
      all.decode_ms = piece->decode_ms;
    }
    return all;
  }

  void abort() { pinfer_request_abort(request_.get()); }

 private:
  struct Free {
    void operator()(pinfer_request* request) const { pinfer_request_free(request); }
  };

  static std::vector<TokenLogprobs> read_logprobs(const pinfer_token_logprobs* tokens,
                                                  size_t count) {
    std::vector<TokenLogprobs> list(count);
    for (size_t i = 0; i < count; ++i) {
      list[i].logprob = tokens[i].logprob;
      for (size_t j = 0; j < tokens[i].num_top; ++j) {
        list[i].top.emplace_back(tokens[i].top_token_ids[j], tokens[i].top_logprobs[j]);
      }
    }
    return list;
  }

  template <typename T>
  static void append(const std::vector<T>& more, std::vector<T>* all) {
    all->insert(all->end(), more.begin(), more.end());
  }

  std::unique_ptr<Callback> callback_;  // outlives the request, which calls it
  std::unique_ptr<pinfer_request, Free> request_;
};

// What a request asks beside its prompt and sampling parameters.
struct SubmitOptions {
  int32_t priority = 0;         // smaller is served earlier
  std::string cache_salt = {};  // requests share cached prefixes only with those of the same salt
  int32_t choice_index = 0;
  // Called on the engine's output thread with each piece, the last one finished; must not block and
  // must not destroy the Request. Empty: read with Request::next().
  Request::Callback callback = nullptr;
};

// What a request for an embedding asks beside its input.
struct EmbedOptions {
  int32_t dimensions = 0;  // leading ones that are kept, before the vector is normalised; 0: all
  int32_t priority = 0;
  std::string cache_salt = {};
  Request::Callback callback = nullptr;  // as in SubmitOptions
};

// An opened bundle. Thread-safe like the C functions.
class Engine {
 public:
  explicit Engine(const std::string& bundle_path,
                  const pinfer_engine_options& options = EngineOptions()) {
    pinfer_engine* engine = nullptr;
    detail::call([&](pinfer_error** error) {
      return pinfer_engine_open(bundle_path.c_str(), &options, &engine, error);
    });
    engine_.reset(engine);
  }

  std::vector<int32_t> tokenize(std::string_view text, bool add_special_tokens = true) const {
    int32_t* ids = nullptr;
    size_t count = 0;
    detail::call([&](pinfer_error** error) {
      return pinfer_tokenize(engine_.get(), text.data(), text.size(), add_special_tokens, &ids,
                             &count, error);
    });
    const std::unique_ptr<int32_t, detail::Free> owned(ids);
    return std::vector<int32_t>(ids, ids + count);
  }

  std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens = true) const {
    return detail::take_text([&](char** text, size_t* size, pinfer_error** error) {
      return pinfer_detokenize(engine_.get(), ids.data(), ids.size(), skip_special_tokens, text,
                               size, error);
    });
  }

  // What one id adds to decoded text; may be part of a character.
  std::string token_bytes(int32_t id) const {
    return detail::take_text([&](char** bytes, size_t* size, pinfer_error** error) {
      return pinfer_token_bytes(engine_.get(), id, bytes, size, error);
    });
  }

  // request_json: {"messages": [...], ...}, see pinfer_render().
  std::string render(std::string_view request_json) const {
    return detail::take_text([&](char** text, size_t* size, pinfer_error** error) {
      return pinfer_render(engine_.get(), request_json.data(), request_json.size(), text, size,
                           error);
    });
  }

  SamplingParams default_sampling_params() const {
    SamplingParams params;
    detail::check(
        pinfer_sampling_params_default(engine_.get(), &params, sizeof(pinfer_sampling_params)),
        nullptr);
    return params;
  }

  Request submit(const std::vector<int32_t>& prompt_token_ids, const SamplingParams& params,
                 SubmitOptions submit_options = {}) {
    std::vector<const char*> stop, bad_words;
    for (const std::string& text : params.stop_strings) stop.push_back(text.c_str());
    for (const std::string& text : params.bad_word_strings) bad_words.push_back(text.c_str());
    pinfer_sampling_params c_params = params;
    c_params.stop = stop.data();
    c_params.num_stop = stop.size();
    c_params.stop_token_ids = params.stop_tokens.data();
    c_params.num_stop_token_ids = params.stop_tokens.size();
    std::vector<int32_t> bias_ids;
    std::vector<double> bias_values;
    for (const auto& [id, bias] : params.logit_biases) {
      bias_ids.push_back(id);
      bias_values.push_back(bias);
    }
    c_params.logit_bias_token_ids = bias_ids.data();
    c_params.logit_bias_values = bias_values.data();
    c_params.num_logit_bias = bias_ids.size();
    c_params.allowed_token_ids = params.allowed_tokens.data();
    c_params.num_allowed_token_ids = params.allowed_tokens.size();
    c_params.bad_words = bad_words.data();
    c_params.num_bad_words = bad_words.size();
    pinfer_request_options options;
    pinfer_request_options_init(&options, sizeof(options));
    options.prompt_token_ids = prompt_token_ids.data();
    options.num_prompt_token_ids = prompt_token_ids.size();
    options.sampling_params = &c_params;
    options.priority = submit_options.priority;
    options.cache_salt = submit_options.cache_salt.c_str();
    options.choice_index = submit_options.choice_index;
    std::unique_ptr<Request::Callback> callback;
    if (submit_options.callback) {
      callback = std::make_unique<Request::Callback>(std::move(submit_options.callback));
      options.output_user_data = callback.get();
      options.output_callback = &Request::call_back;
    }
    pinfer_request* request = nullptr;
    detail::call([&](pinfer_error** error) {
      return pinfer_submit(engine_.get(), &options, &request, error);
    });
    return Request(request, std::move(callback));
  }

  // prompt_name: see pinfer_embed_tokenize(); none: the model's default.
  std::vector<int32_t> tokenize_to_embed(
      std::string_view text, const std::optional<std::string>& prompt_name = std::nullopt) const {
    const char* name = prompt_name.has_value() ? prompt_name->c_str() : nullptr;
    int32_t* ids = nullptr;
    size_t count = 0;
    detail::call([&](pinfer_error** error) {
      return pinfer_embed_tokenize(engine_.get(), text.data(), text.size(), name, &ids, &count,
                                   error);
    });
    const std::unique_ptr<int32_t, detail::Free> owned(ids);
    return std::vector<int32_t>(ids, ids + count);
  }

  // The embedding comes with the request's only output.
  Request embed(const std::vector<int32_t>& token_ids, EmbedOptions embed_options = {}) {
    pinfer_embed_options options;
    pinfer_embed_options_init(&options, sizeof(options));
    options.token_ids = token_ids.data();
    options.num_token_ids = token_ids.size();
    options.dimensions = embed_options.dimensions;
    options.priority = embed_options.priority;
    options.cache_salt = embed_options.cache_salt.c_str();
    std::unique_ptr<Request::Callback> callback;
    if (embed_options.callback) {
      callback = std::make_unique<Request::Callback>(std::move(embed_options.callback));
      options.output_user_data = callback.get();
      options.output_callback = &Request::call_back;
    }
    pinfer_request* request = nullptr;
    detail::call([&](pinfer_error** error) {
      return pinfer_embed(engine_.get(), &options, &request, error);
    });
    return Request(request, std::move(callback));
  }

  // False if requests were still running when the time (-1: no limit) ran out.
  bool drain(int64_t timeout_ms = -1) {
    pinfer_error* error = nullptr;
    const pinfer_status status = pinfer_engine_drain(engine_.get(), timeout_ms, &error);
    if (status != PINFER_TIMED_OUT) detail::check(status, error);
    pinfer_error_free(error);
    return status == PINFER_OK;
  }

  std::string info_json() const { return pinfer_engine_info_json(engine_.get()); }

  pinfer_metrics metrics() const {
    pinfer_metrics metrics{};
    detail::check(pinfer_engine_metrics(engine_.get(), &metrics, sizeof(metrics)), nullptr);
    return metrics;
  }

 private:
  struct Close {
    void operator()(pinfer_engine* engine) const { pinfer_engine_close(engine); }
  };
  std::unique_ptr<pinfer_engine, Close> engine_;
};

inline void verify(const std::string& bundle_path) {
  detail::call([&](pinfer_error** error) { return pinfer_verify(bundle_path.c_str(), error); });
}

inline std::string inspect(const std::string& bundle_path) {
  return detail::take_text([&](char** text, size_t* size, pinfer_error** error) {
    return pinfer_inspect(bundle_path.c_str(), text, size, error);
  });
}

}  // namespace v1
}  // namespace pinfer
