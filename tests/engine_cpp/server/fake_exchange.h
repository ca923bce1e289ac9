// An exchange without a socket, and endpoints over a bundle that holds text alone.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "../text_bundle.h"
#include "server/api_error.h"
#include "server/http/asio.h"
#include "server/http/exchange.h"
#include "server/openai/endpoint.h"

namespace pinfer::server {

class FakeExchange final : public Exchange {
 public:
  explicit FakeExchange(HttpRequest request) : Exchange(std::move(request)) {}

  void add_header(std::string name, std::string value) override {
    headers.emplace_back(std::move(name), std::move(value));
  }
  void respond(HttpResponse given) override {
    ++num_answers;
    response = std::move(given);
  }
  void start_events() override { ++num_answers; }
  void send_event(std::string data) override { events.push_back(std::move(data)); }
  void end_events() override { ended = true; }

  Headers headers;
  int num_answers = 0;
  std::optional<HttpResponse> response;
  std::vector<std::string> events;
  bool ended = false;
};

inline HttpRequest make_request(std::string method, std::string path, std::string body = "") {
  HttpRequest request;
  request.method = std::move(method);
  request.path = std::move(path);
  request.body = std::move(body);
  request.id = "id";
  return request;
}

// The endpoints of an engine that has a tokenizer and a template but no model: what reaches the
// engine is answered 503.
class TextEndpoints {
 public:
  TextEndpoints() {
    const std::string path =
        std::filesystem::temp_directory_path() / ("endpoints_" + std::to_string(::getpid()));
    write_text_bundle(path,
                      read_file(PINFER_TEST_DIR "/data/chat_templates/hostile_compiled.json"));
    context.engine = std::make_shared<Engine>(path);
    std::filesystem::remove_all(path);
    context.metrics = std::make_shared<ServerMetrics>();
    context.model_names = {"m"};
    context.max_model_len = 128;
    context.prompt_limit = std::make_shared<PromptLimit>(context.engine, 128, 256);
    context.executor = io.get_executor();
  }

  // Answers like Service does.
  std::shared_ptr<FakeExchange> ask(const std::string& path, const std::string& body) {
    auto exchange = std::make_shared<FakeExchange>(make_request("POST", path, body));
    try {
      if (path == "/v1/completions") handle_completions(context, exchange);
      if (path == "/v1/chat/completions") handle_chat_completions(context, exchange);
      if (path == "/tokenize") handle_tokenize(context, exchange);
      if (path == "/detokenize") handle_detokenize(context, exchange);
    } catch (const std::exception& error) {
      exchange->respond(from_engine_error(error, "").response());
    }
    io.restart();
    io.run();
    exchange->forget_cancel();
    return exchange;
  }

  boost::asio::io_context io{1};
  EndpointContext context;
};

}  // namespace pinfer::server
