// C interface: text and generation. See include/pinfer/pinfer.h.
#include <algorithm>
#include <optional>

#include "engine/c_api_support.h"

namespace pinfer {
namespace {

Status check_strings(const char* name, const char* const* strings, size_t count) {
  PINFER_RETURN_IF_ERROR(check_array(name, strings, count));
  if (std::find(strings, strings + count, nullptr) == strings + count) return Status();
  return Status::invalid_argument(std::string(name) + ": one of the strings is NULL");
}

Status check_arrays(const pinfer_sampling_params& given) {
  PINFER_RETURN_IF_ERROR(
      check_array("stop_token_ids", given.stop_token_ids, given.num_stop_token_ids));
  PINFER_RETURN_IF_ERROR(
      check_array("logit_bias_token_ids", given.logit_bias_token_ids, given.num_logit_bias));
  PINFER_RETURN_IF_ERROR(
      check_array("logit_bias_values", given.logit_bias_values, given.num_logit_bias));
  PINFER_RETURN_IF_ERROR(
      check_array("allowed_token_ids", given.allowed_token_ids, given.num_allowed_token_ids));
  PINFER_RETURN_IF_ERROR(check_strings("bad_words", given.bad_words, given.num_bad_words));
  return check_strings("stop", given.stop, given.num_stop);
}

// REQUIRES: check_arrays() is OK.
SamplingParams read_sampling_params(const pinfer_sampling_params& given) {
  SamplingParams params;
  params.temperature = given.temperature;
  params.top_p = given.top_p;
  params.top_k = given.top_k;
  params.min_p = given.min_p;
  params.presence_penalty = given.presence_penalty;
  params.frequency_penalty = given.frequency_penalty;
  params.repetition_penalty = given.repetition_penalty;
  if (given.has_seed) params.seed = given.seed;
  params.max_tokens = given.max_tokens;
  params.min_tokens = given.min_tokens;
  params.ignore_eos = given.ignore_eos;
  params.stop_token_ids.assign(given.stop_token_ids,
                               given.stop_token_ids + given.num_stop_token_ids);
  if (given.logprobs >= 0) params.logprobs = given.logprobs;
  if (given.prompt_logprobs >= 0) params.prompt_logprobs = given.prompt_logprobs;
  for (size_t i = 0; i < given.num_logit_bias; ++i) {
    params.logit_bias[given.logit_bias_token_ids[i]] = given.logit_bias_values[i];
  }
  params.allowed_token_ids.assign(given.allowed_token_ids,
                                  given.allowed_token_ids + given.num_allowed_token_ids);
  return params;
}

pinfer_sampling_params to_c_params(const SamplingParams& params) {
  pinfer_sampling_params out{};
  out.struct_size = sizeof(out);
  out.temperature = params.temperature;
  out.top_p = params.top_p;
  out.top_k = params.top_k;
  out.min_p = params.min_p;
  out.presence_penalty = params.presence_penalty;
  out.frequency_penalty = params.frequency_penalty;
  out.repetition_penalty = params.repetition_penalty;
  out.max_tokens = params.max_tokens;
  out.min_tokens = params.min_tokens;
  out.ignore_eos = params.ignore_eos;
  out.skip_special_tokens = true;
  out.logprobs = params.logprobs.value_or(-1);
  out.prompt_logprobs = params.prompt_logprobs.value_or(-1);
  return out;
}

size_t num_top(const std::vector<TokenLogprobs>& tokens) {
  size_t count = 0;
  for (const TokenLogprobs& token : tokens) count += token.top.size();
  return count;
}

// The lists lie one after the other in output->top_*, which must not move any more.
void write_logprobs(const std::vector<TokenLogprobs>& tokens,
                    std::vector<pinfer_token_logprobs>* list, OutputForC* output) {
  list->clear();
  for (const TokenLogprobs& token : tokens) {
    const size_t begin = output->top_token_ids.size();
    for (const auto& [id, logprob] : token.top) {
      output->top_token_ids.push_back(id);
      output->top_logprobs.push_back(logprob);
    }
    list->push_back({token.chosen, output->top_token_ids.data() + begin,
                     output->top_logprobs.data() + begin, token.top.size()});
  }
}

// The C struct of `output`, whose memory must outlive the caller's use of it.
pinfer_output to_c_output(OutputForC* output) {
  const StreamOutput& piece = output->piece;
  const size_t num_listed = num_top(piece.logprobs) + num_top(piece.prompt_logprobs);
  output->top_token_ids.clear();
  output->top_logprobs.clear();
  output->top_token_ids.reserve(num_listed);
  output->top_logprobs.reserve(num_listed);
  write_logprobs(piece.logprobs, &output->logprobs, output);
  write_logprobs(piece.prompt_logprobs, &output->prompt_logprobs, output);
  pinfer_output all{};
  all.logprobs = output->logprobs.data();
  all.num_logprobs = output->logprobs.size();
  all.prompt_logprobs = output->prompt_logprobs.data();
  all.num_prompt_logprobs = output->prompt_logprobs.size();
  all.text = piece.text.c_str();
  all.text_size = piece.text.size();
  all.token_ids = piece.token_ids.data();
  all.num_token_ids = piece.token_ids.size();
  all.finish_reason = piece.finished() ? piece.finish_reason.c_str() : nullptr;
  all.error_message = piece.finish_reason == "error" ? piece.error_message.c_str() : nullptr;
  all.num_prompt_tokens = piece.num_prompt_tokens;
  all.num_cached_tokens = piece.num_cached_tokens;
  all.queue_ms = piece.times.queue_ms;
  all.prefill_ms = piece.times.prefill_ms;
  all.decode_ms = piece.times.decode_ms;
  all.embedding = piece.embedding.data();
  all.num_embedding = piece.embedding.size();
  all.struct_size = sizeof(all);
  return all;
}

Status read_request(const pinfer_engine& engine, const pinfer_request_options& given,
                    GenerateRequest* request) {
  PINFER_RETURN_IF_ERROR(
      check_array("prompt_token_ids", given.prompt_token_ids, given.num_prompt_token_ids));
  request->prompt_token_ids.assign(given.prompt_token_ids,
                                   given.prompt_token_ids + given.num_prompt_token_ids);
  pinfer_sampling_params params = to_c_params(engine.engine->default_sampling_params());
  PINFER_RETURN_IF_ERROR(read_options("sampling_params", given.sampling_params, &params));
  PINFER_RETURN_IF_ERROR(check_arrays(params));
  request->sampling_params = read_sampling_params(params);
  for (size_t i = 0; i < params.num_stop; ++i) {
    request->text.stop.emplace_back(params.stop[i]);
    if (request->text.stop.back().empty()) {
      return Status::invalid_argument("stop: strings must not be empty");
    }
  }
  request->text.include_stop_str_in_output = params.include_stop_str_in_output;
  request->text.skip_special_tokens = params.skip_special_tokens;
  request->bad_words.assign(params.bad_words, params.bad_words + params.num_bad_words);
  request->priority = given.priority;
  request->choice_index = given.choice_index;
  request->cache_salt = given.cache_salt == nullptr ? "" : given.cache_salt;
  request->callback = make_callback(given.output_callback, given.output_user_data);
  return Status();
}

}  // namespace

RequestStream::Callback make_callback(pinfer_output_callback callback, void* user_data) {
  if (callback == nullptr) return nullptr;
  return [callback, user_data](const StreamOutput& piece) {
    OutputForC memory{.piece = piece,
                      .logprobs = {},
                      .prompt_logprobs = {},
                      .top_token_ids = {},
                      .top_logprobs = {}};
    const pinfer_output output = to_c_output(&memory);
    callback(user_data, &output);
  };
}

}  // namespace pinfer

using pinfer::check_array;
using pinfer::check_given;
using pinfer::check_struct;
using pinfer::make_request;
using pinfer::read_options;
using pinfer::Status;
using pinfer::write_options;

pinfer_status pinfer_tokenize(const pinfer_engine* engine, const char* text, size_t text_size,
                              bool add_special_tokens, int32_t** token_ids, size_t* num_tokens,
                              pinfer_error** error) {
  pinfer::clear(token_ids, num_tokens);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(
        check_given({{"engine", engine}, {"token_ids", token_ids}, {"num_tokens", num_tokens}}));
    PINFER_RETURN_IF_ERROR(check_array("text", text, text_size));
    PINFER_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        engine->engine->text().tokenizer().encode({text, text_size}, add_special_tokens));
    return pinfer::copy_ids(ids, token_ids, num_tokens);
  });
}

pinfer_status pinfer_detokenize(const pinfer_engine* engine, const int32_t* token_ids,
                                size_t num_tokens, bool skip_special_tokens, char** text,
                                size_t* text_size, pinfer_error** error) {
  pinfer::clear(text, text_size);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(check_given({{"engine", engine}, {"text", text}}));
    PINFER_RETURN_IF_ERROR(check_array("token_ids", token_ids, num_tokens));
    PINFER_ASSIGN_OR_RETURN(
        const std::string decoded,
        engine->engine->text().tokenizer().decode({token_ids, num_tokens}, skip_special_tokens));
    return pinfer::copy_text(decoded, text, text_size);
  });
}

pinfer_status pinfer_token_bytes(const pinfer_engine* engine, int32_t token_id, char** bytes,
                                 size_t* size, pinfer_error** error) {
  pinfer::clear(bytes, size);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(check_given({{"engine", engine}, {"bytes", bytes}, {"size", size}}));
    const pinfer::Tokenizer& tokenizer = engine->engine->text().tokenizer();
    return pinfer::copy_text(tokenizer.token_bytes(token_id), bytes, size);
  });
}

pinfer_status pinfer_render(const pinfer_engine* engine, const char* request_json,
                            size_t request_size, char** text, size_t* text_size,
                            pinfer_error** error) {
  pinfer::clear(text, text_size);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(check_given({{"engine", engine}, {"text", text}}));
    PINFER_RETURN_IF_ERROR(check_array("request_json", request_json, request_size));
    PINFER_ASSIGN_OR_RETURN(const std::string rendered,
                            engine->engine->text().render({request_json, request_size}));
    return pinfer::copy_text(rendered, text, text_size);
  });
}

pinfer_status pinfer_sampling_params_init(pinfer_sampling_params* params, size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    return write_options(pinfer::to_c_params(pinfer::SamplingParams()), params, struct_size);
  });
}

pinfer_status pinfer_sampling_params_default(const pinfer_engine* engine,
                                             pinfer_sampling_params* params, size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(check_given({{"engine", engine}}));
    return write_options(pinfer::to_c_params(engine->engine->default_sampling_params()), params,
                         struct_size);
  });
}

pinfer_status pinfer_request_options_init(pinfer_request_options* options, size_t struct_size) {
  return pinfer::guarded(nullptr, [&]() -> Status {
    return write_options(pinfer_request_options(), options, struct_size);
  });
}

pinfer_status pinfer_submit(pinfer_engine* engine, const pinfer_request_options* options,
                            pinfer_request** request, pinfer_error** error) {
  pinfer::clear(request);
  return pinfer::guarded(error, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(
        check_given({{"engine", engine}, {"options", options}, {"request", request}}));
    pinfer_request_options given{};
    PINFER_RETURN_IF_ERROR(read_options("options", options, &given));
    pinfer::GenerateRequest generate;
    PINFER_RETURN_IF_ERROR(pinfer::read_request(*engine, given, &generate));
    return make_request(*engine, given.output_callback != nullptr, request,
                        [&] { return engine->engine->submit(std::move(generate)); });
  });
}

pinfer_status pinfer_request_next(pinfer_request* request, int64_t timeout_ms,
                                  pinfer_output* output, size_t struct_size) {
  using ReadResult = pinfer::RequestStream::ReadResult;
  pinfer_status result = PINFER_OK;
  const pinfer_status failure = pinfer::guarded(nullptr, [&]() -> Status {
    PINFER_RETURN_IF_ERROR(check_given({{"request", request}}));
    PINFER_RETURN_IF_ERROR(check_struct(output, struct_size));
    if (request->has_callback) return Status::invalid_argument("the request has a callback");
    std::optional<std::chrono::milliseconds> timeout;
    if (timeout_ms >= 0) timeout = pinfer::milliseconds(timeout_ms);
    switch (request->handle.stream->read(timeout, &request->output.piece)) {
      case ReadResult::TIMED_OUT:
        result = PINFER_TIMED_OUT;
        return Status();
      case ReadResult::ENDED:
        result = PINFER_ENDED;
        return Status();
      case ReadResult::OUTPUT:
        break;
    }
    pinfer_output all = pinfer::to_c_output(&request->output);
    all.struct_size = std::min(struct_size, sizeof(all));
    pinfer::write_struct(all, output, struct_size);
    return Status();
  });
  return failure == PINFER_OK ? result : failure;
}

void pinfer_request_abort(pinfer_request* request) {
  if (request == nullptr) return;
  pinfer::guarded(nullptr, [&]() -> Status {
    if (const std::shared_ptr<pinfer::Engine> engine = request->engine.lock()) {
      engine->abort(request->handle.id);
    }
    return Status();
  });
}

void pinfer_request_free(pinfer_request* request) {
  if (request == nullptr) return;
  pinfer_request_abort(request);
  request->handle.stream->detach_callback();
  delete request;
}
