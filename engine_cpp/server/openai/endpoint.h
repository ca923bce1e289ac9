// What the endpoints know of the model they serve.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <vector>

#include "pinfer/pinfer.hpp"
#include "server/http/exchange.h"
#include "server/openai/json_body.h"
#include "server/server_metrics.h"

namespace pinfer::server {

struct EndpointContext {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<ServerMetrics> metrics;
  std::vector<std::string> model_names;  // the first one stands in answers
  int32_t max_model_len = 0;
  int64_t created = 0;                    // seconds since 1970
  boost::asio::any_io_executor executor;  // where answers are worded
};

// 404 unless the body's `model` is absent or one of ours; returns the name that answers show.
std::string check_model(const Fields& body, const EndpointContext& context);

// "cmpl-" and a random number.
std::string new_object_id(const std::string& prefix);

int64_t seconds_since_1970();

// The endpoints. Each throws ApiError, or answers the exchange at once or later.
void handle_completions(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_chat_completions(const EndpointContext& context,
                             const std::shared_ptr<Exchange>& exchange);
void handle_tokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_detokenize(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);
void handle_models(const EndpointContext& context, const std::shared_ptr<Exchange>& exchange);

}  // namespace pinfer::server
