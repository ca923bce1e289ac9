// What the endpoints know of the model they serve.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"
#include "server/http/exchange.h"
#include "server/openai/json_body.h"
#include "server/openai/prompt_limit.h"
#include "server/server_log.h"
#include "server/server_metrics.h"

namespace pinfer::server {

struct EndpointContext {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const PromptLimit> prompt_limit;
  std::shared_ptr<ServerMetrics> metrics;
  ServerLog* log = nullptr;
  std::vector<std::string> model_names;  // the first one stands in answers
  int32_t max_model_len = 0, hidden_size = 0;
  bool embeds = false;                    // the model's task: to embed, or to generate text
  int32_t max_queue = 0;                  // requests that may wait; 0 = no limit
  int64_t created = 0;                    // seconds since 1970
  boost::asio::any_io_executor executor;  // where answers are worded
};

// 404 unless the body's `model` is absent or one of ours; returns the name that answers show.
std::string check_model(const Fields& body, const EndpointContext& context);

// 400 that names the right endpoints if the model's task is the other one.
void check_embeds(const EndpointContext& context, bool embeds);

// The body of a request. Fields that no endpoint knows are logged at level debug.
Json read_body(const EndpointContext& context, const Exchange& exchange);

// 400 if so many choices can never be accepted at once.
void check_num_choices(size_t num_prompts, int32_t num_choices, const EndpointContext& context);

// 400 for the first of these fields that asks for something: is there, and neither false nor "".
void refuse_fields(const Fields& body, std::initializer_list<const char*> names);

// The fields of a body that no endpoint knows, for the log; "" if there are none.
std::string unknown_fields(const Json& body);

// "cmpl-" and a random number.
std::string new_object_id(const std::string& prefix);

int64_t seconds_since_1970();

// The endpoints. Each throws ApiError, or answers the exchange at once or later.
void handle_completions(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_chat_completions(const EndpointContext& context,
                             const std::shared_ptr<Exchange>& exchange);
void handle_embeddings(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_tokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_detokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_models(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);

}  // namespace pinfer::server
