#include "server/service.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cctype>

#include "server/api_error.h"
#include "server/embedded_files.h"

namespace pinfer::server {
namespace {

constexpr const char* kPreflightSeconds = "86400";

// What a page wants to send, if those are names (OpenAI's own client sends many of its own).
std::string allowed_headers(const HttpRequest& request) {
  const std::string* wanted = request.header("access-control-request-headers");
  const auto is_good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == ',' ||
           c == ' ';
  };
  if (wanted != nullptr && !wanted->empty() && wanted->size() < 2048 &&
      std::all_of(wanted->begin(), wanted->end(), is_good)) {
    std::string list;
    for (const char c : *wanted) {
      if (c == ',') list += ", ";
      if (c != ',' && c != ' ') list += c;
    }
    return list;
  }
  return "authorization, content-type, x-request-id";
}

using Endpoint = void (*)(const EndpointContext&, const std::shared_ptr<Exchange>&);

}  // namespace

struct Service::Route {
  const char* path;
  const char* method;  // GET answers HEAD as well
  bool needs_key;
  Endpoint endpoint;                                           // of the model, on a worker; or
  void (Service::*handler)(const std::shared_ptr<Exchange>&);  // of the server, at once
};

const Service::Route* Service::find_route(const std::string& path) {
  static constexpr Route kRoutes[] = {
      {"/v1/completions", "POST", true, &handle_completions, nullptr},
      {"/v1/chat/completions", "POST", true, &handle_chat_completions, nullptr},
      {"/v1/embeddings", "POST", true, &handle_embeddings, nullptr},
      {"/v1/models", "GET", true, &handle_models, nullptr},
      {"/tokenize", "POST", true, &handle_tokenize, nullptr},
      {"/detokenize", "POST", true, &handle_detokenize, nullptr},
      {"/health", "GET", false, nullptr, &Service::handle_health},
      {"/ready", "GET", false, nullptr, &Service::handle_ready},
      {"/version", "GET", false, nullptr, &Service::handle_version},
      {"/metrics", "GET", false, nullptr, &Service::handle_metrics},
      {"/openapi.json", "GET", false, nullptr, &Service::handle_openapi},
      {"/", "GET", false, nullptr, &Service::handle_page},
  };
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
  }
  return nullptr;
}

Service::Service(const ServerConfig& config, ServerLog* log, boost::asio::any_io_executor workers)
    : config_(config), log_(log), workers_(std::move(workers)) {}

void Service::set_engine(std::shared_ptr<Engine> engine) {
  const Json info = Json::parse(engine->info_json());
  auto context = std::make_shared<EndpointContext>();
  context->metrics = metrics_;
  context->model_names = config_.served_model_names;
  if (context->model_names.empty()) context->model_names.push_back(info.at("model_name"));
  context->max_model_len = info.at("max_model_len");
  context->prompt_limit = std::make_shared<PromptLimit>(engine, context->max_model_len,
                                                        info.at("tokenizer_vocab_size"));
  context->engine = std::move(engine);
  context->hidden_size = info.at("hidden_size");
  context->embeds = info.at("task") == "embed";
  context->max_queue = config_.max_queue;
  context->log = log_;
  context->created = seconds_since_1970();
  context->executor = workers_;
  last_step_ = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

std::shared_ptr<const EndpointContext> Service::context() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

bool Service::wait_until_idle(std::chrono::milliseconds timeout) {
  const std::shared_ptr<const EndpointContext> context = this->context();
  return context == nullptr || context->engine->drain(timeout.count());
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
  try {
    allow_origin(exchange);
    const Route* route = check(exchange);
    if (route == nullptr) {
      answer_preflight(find_route(exchange->request().path), exchange);
    } else {
      dispatch(*route, exchange);
    }
  } catch (const ApiError& error) {
    exchange->respond(error.response());
  }
}

const Service::Route* Service::check(const std::shared_ptr<Exchange>& exchange) const {
  const HttpRequest& request = exchange->request();
  if (request.method == "OPTIONS") return nullptr;
  const Route* route = find_route(request.path);
  if (route == nullptr) throw ApiError(404, "there is no such path");
  const std::string allowed = route->method;
  if (request.method != allowed && !(request.method == "HEAD" && allowed == "GET")) {
    exchange->add_header("Allow", allowed == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
    throw ApiError(405, "the method is not allowed here; expected " + allowed);
  }
  if (route->needs_key) check_key(request);
  return route;
}

bool Service::refuse_early(const std::shared_ptr<Exchange>& exchange) {
  try {
    (void)check(exchange);
    return false;
  } catch (const ApiError& error) {
    allow_origin(exchange);
    exchange->respond(error.response());
    return true;
  }
}

void Service::dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange) {
  if (route.handler != nullptr) {
    (this->*route.handler)(exchange);
    return;
  }
  if (is_draining_) throw ApiError(503, "the server is shutting down");
  const std::shared_ptr<const EndpointContext> context = this->context();
  if (context == nullptr) throw ApiError(503, "the model is loading");
  if (config_.log_requests && log_->is_on(PINFER_LOG_DEBUG)) {
    log_->write(PINFER_LOG_DEBUG, exchange->request().id + ": " + exchange->request().body);
  }
  // Reading a large body takes a while: not on the thread that serves all sockets.
  boost::asio::post(workers_, [endpoint = route.endpoint, context, exchange] {
    try {
      endpoint(*context, exchange);
    } catch (const std::exception& error) {
      exchange->respond(from_engine_error(error, "").response());
    }
  });
}

void Service::check_key(const HttpRequest& request) const {
  if (!keys_.are_required()) return;
  const auto count =
      std::count_if(request.headers.begin(), request.headers.end(),
                    [](const auto& header) { return header.first == "authorization"; });
  const std::string* authorization = request.header("authorization");
  if (count != 1 || !keys_.accept(*authorization)) {
    throw ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", "",
                   "invalid_api_key");
  }
}

// Never together with credentials, so a key cannot be used by a page that does not know it.
void Service::allow_origin(const std::shared_ptr<Exchange>& exchange) {
  if (config_.cors_origins.empty()) return;
  const auto listed = [&](const std::string& origin) {
    return std::find(config_.cors_origins.begin(), config_.cors_origins.end(), origin) !=
           config_.cors_origins.end();
  };
  const std::string* origin = exchange->request().header("origin");
  if (listed("*")) {
    exchange->add_header("Access-Control-Allow-Origin", "*");
  } else {
    exchange->add_header("Vary", "Origin");
    if (origin != nullptr && listed(*origin)) {
      exchange->add_header("Access-Control-Allow-Origin", *origin);
    }
  }
  exchange->add_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

// A preflight carries no key.
void Service::answer_preflight(const Route* route, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response{.status = 204, .content_type = ""};
  const std::string methods = route == nullptr                      ? "GET, HEAD, POST, OPTIONS"
                              : std::string(route->method) == "GET" ? "GET, HEAD, OPTIONS"
                                                                    : "POST, OPTIONS";
  response.headers = {{"Allow", methods},
                      {"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", allowed_headers(exchange->request())},
                      {"Access-Control-Max-Age", kPreflightSeconds}};
  exchange->respond(std::move(response));
}

void Service::watch_engine() {
  const std::shared_ptr<const EndpointContext> context = this->context();
  if (context == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  const pinfer_metrics metrics = context->engine->metrics();
  if (metrics.num_steps != last_num_steps_ || metrics.num_requests_running == 0) {
    last_num_steps_ = metrics.num_steps;
    last_step_ = now;
  }
  const bool stalled = std::chrono::milliseconds(metrics.stalled_ms) > config_.stuck_after;
  is_stuck_ = stalled || now - last_step_ > config_.stuck_after;
}

std::string Service::why_not_healthy() const {
  if (is_draining_) return "the server is shutting down";
  if (context() == nullptr) return "the model is loading";
  if (is_stuck_) return "the engine does not move";
  return "";
}

void Service::handle_health(const std::shared_ptr<Exchange>& exchange) {
  const std::string reason = why_not_healthy();
  if (!reason.empty()) throw ApiError(503, reason);
  exchange->respond({.body = R"({"status":"ok"})"});
}

// A server that sheds load lives, but should get no more of it.
void Service::handle_ready(const std::shared_ptr<Exchange>& exchange) {
  const std::shared_ptr<const EndpointContext> context = this->context();
  if (context != nullptr && config_.max_queue > 0 &&
      context->engine->metrics().num_requests_waiting >= config_.max_queue) {
    throw ApiError(503, "the queue is full");
  }
  handle_health(exchange);
}

void Service::handle_version(const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = to_json_text({{"version", pinfer_version()}})});
}

void Service::handle_metrics(const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  const std::shared_ptr<const EndpointContext> context = this->context();
  if (context == nullptr) {
    response.body = metrics_->text("", nullptr);
  } else {
    const pinfer_metrics engine = context->engine->metrics();
    response.body = metrics_->text(context->model_names.front(), &engine);
  }
  exchange->respond(std::move(response));
}

void Service::handle_page(const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = std::string(kChatPage),
                     .content_type = "text/html; charset=utf-8",
                     .headers = {{"Content-Security-Policy",
                                  "default-src 'none'; style-src 'unsafe-inline'; script-src "
                                  "'unsafe-inline'; connect-src 'self'; img-src data:; "
                                  "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"}}});
}

void Service::handle_openapi(const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = std::string(kOpenApi)});
}

}  // namespace pinfer::server
