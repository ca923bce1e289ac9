// What the server answers: routes, keys, cross-origin access, health. Knows nothing of sockets.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "pinfer/pinfer.hpp"
#include "server/api_keys.h"
#include "server/http/exchange.h"
#include "server/openai/endpoint.h"
#include "server/server_config.h"
#include "server/server_log.h"
#include "server/server_metrics.h"

namespace pinfer::server {

// Thread-safe.
class Service {
 public:
  // `config` and `log` are borrowed. `workers`: where requests are read and answers are worded.
  Service(const ServerConfig& config, ServerLog* log, boost::asio::any_io_executor workers);

  // From now on requests reach this engine.
  void set_engine(std::shared_ptr<Engine> engine);
  bool has_engine() const { return context() != nullptr; }
  // New work is refused from now on.
  void start_draining() { is_draining_ = true; }
  bool is_draining() const { return is_draining_; }
  // False if the engine still runs requests when the time is over.
  bool wait_until_idle(std::chrono::milliseconds timeout);

  ApiKeys& keys() { return keys_; }
  ServerMetrics& metrics() { return *metrics_; }

  // Whether something is served at a path, by whatever method.
  static bool has_route(const std::string& path) { return find_route(path) != nullptr; }

  // Answers, now or later, on any thread. Does not block.
  void handle(const std::shared_ptr<Exchange>& exchange);

  // Answers a request for what stands before its body: wrong path or method, no key. False: handle
  // it, with its body.
  bool refuse_early(const std::shared_ptr<Exchange>& exchange);
  // Headers of every answer.
  void add_headers(const std::shared_ptr<Exchange>& exchange) { allow_origin(exchange); }

  // Looks whether the engine moves; call it about once a second.
  void watch_engine();

 private:
  struct Route;
  static const Route* find_route(const std::string& path);

  // The route of a request that may pass; throws ApiError. Null for a preflight.
  const Route* check(const std::shared_ptr<Exchange>& exchange) const;
  void dispatch(const Route& route, const std::shared_ptr<Exchange>& exchange);
  void allow_origin(const std::shared_ptr<Exchange>& exchange);
  void answer_preflight(const Route* route, const std::shared_ptr<Exchange>& exchange);
  void check_key(const HttpRequest& request) const;
  // "" if all is well, else why not.
  std::string why_not_healthy() const;
  std::shared_ptr<const EndpointContext> context() const;

  void handle_health(const std::shared_ptr<Exchange>& exchange);
  void handle_ready(const std::shared_ptr<Exchange>& exchange);
  void handle_version(const std::shared_ptr<Exchange>& exchange);
  void handle_metrics(const std::shared_ptr<Exchange>& exchange);
  void handle_page(const std::shared_ptr<Exchange>& exchange);
  void handle_openapi(const std::shared_ptr<Exchange>& exchange);

  const ServerConfig& config_;
  ServerLog* const log_;
  const boost::asio::any_io_executor workers_;
  const std::shared_ptr<ServerMetrics> metrics_ = std::make_shared<ServerMetrics>();
  ApiKeys keys_;
  std::atomic<bool> is_draining_ = false;
  std::atomic<bool> is_stuck_ = false;
  int64_t last_num_steps_ = -1;  // of watch_engine(), like the next
  std::chrono::steady_clock::time_point last_step_;

  mutable std::mutex mutex_;
  std::shared_ptr<const EndpointContext> context_;  // null while loading
};

}  // namespace pinfer::server
