#include "server/server.h"

#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/ssl.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>
#include <unordered_set>

#include "server/http/connection.h"
#include "server/service.h"
#include "server/service_notifier.h"

namespace pinfer::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

constexpr std::chrono::seconds kWatchInterval{1};
// After the deadline of a drain: for the errors of what was cut off to reach their clients.
constexpr std::chrono::milliseconds kLastWords{500};

// Connections, and the files of the engine, must not run out of descriptors.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::shared_ptr<TlsContext> load_tls(const ServerConfig& config) {
  if (config.tls_cert.empty() && config.tls_key.empty()) return nullptr;
  if (config.tls_cert.empty() || config.tls_key.empty()) {
    throw std::runtime_error("--tls-cert and --tls-key: expected both or none");
  }
  for (const auto& [flag, path] :
       {std::pair("--tls-cert ", config.tls_cert), std::pair("--tls-key ", config.tls_key)}) {
    if (::access(path.c_str(), R_OK) != 0) {  // OpenSSL's own words do not say so
      throw std::runtime_error(flag + path + ": " + std::strerror(errno));
    }
  }
  auto context = std::make_shared<TlsContext>(TlsContext::tls_server);
  context->set_options(TlsContext::default_workarounds | TlsContext::no_sslv2 |
                       TlsContext::no_sslv3 | TlsContext::no_tlsv1 | TlsContext::no_tlsv1_1);
  error_code error;
  context->use_certificate_chain_file(config.tls_cert, error);
  if (error) {
    throw std::runtime_error("--tls-cert " + config.tls_cert + ": " + error.message());
  }
  context->use_private_key_file(config.tls_key, TlsContext::pem, error);
  if (error) throw std::runtime_error("--tls-key " + config.tls_key + ": " + error.message());
  return context;
}

// One thread runs the sockets; workers read requests and word answers; the engine has its own.
class Server {
 public:
  Server(const ServerConfig& config, ServerLog* log)
      : config_(config),
        log_(log),
        workers_(static_cast<size_t>(config.num_workers)),
        service_(config, log, workers_.get_executor()),
        notifier_(config.notify_socket),
        signals_(io_),
        watch_timer_(io_),
        drain_timer_(io_) {
    service_.keys().load(config.api_keys, config.api_key_file);
    tls_ = load_tls(config);
    host_.config = &config_;
    host_.handle = [this](std::shared_ptr<Exchange> exchange) { service_.handle(exchange); };
    host_.refuse_early = [this](const std::shared_ptr<Exchange>& exchange) {
      return service_.refuse_early(exchange);
    };
    host_.add_headers = [this](const std::shared_ptr<Exchange>& exchange) {
      service_.add_headers(exchange);
    };
    host_.done = [this](const Exchange& exchange, int status, uint64_t bytes, double ms) {
      service_.metrics().add_http(metric_method(exchange), metric_path(exchange), status);
      log_->write_access(exchange, status, bytes, ms);
    };
    host_.track = [this](const std::shared_ptr<Exchange>& exchange, bool begins) {
      begins ? void(exchanges_.insert(exchange)) : void(exchanges_.erase(exchange));
      if (service_.is_draining() && exchanges_.empty()) stop();
    };
    host_.is_draining = [this] { return service_.is_draining(); };
  }

  int run(const LoadEngine& load) {
    raise_file_limit();
    std::signal(SIGPIPE, SIG_IGN);
    listen();
    notify("STATUS=loading the model");
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) signals_.add(signal);
    wait_for_signal();
    watch_engine();
    asio::co_spawn(io_, accept(), asio::detached);
    std::exception_ptr failure;
    std::thread loader([&] {
      try {
        std::shared_ptr<Engine> engine = load();
        asio::post(io_, [this, engine = std::move(engine)]() mutable { ready(std::move(engine)); });
      } catch (...) {
        failure = std::current_exception();
        asio::post(io_, [this] { stop(); });
      }
    });
    io_.run();
    loader.join();
    remove_socket_file();
    // What was cut off ends now; an engine that does not even do that is left to the system.
    if (!service_.wait_until_idle(kLastWords) || !join_workers(kLastWords)) end_at_once(0);
    if (failure) std::rethrow_exception(failure);
    return 0;
  }

 private:
  // False if they are still at work, on a text that takes long, when the time is over.
  bool join_workers(std::chrono::milliseconds timeout) {
    const auto joined = std::make_shared<std::promise<void>>();  // may outlive this call
    std::thread joiner([this, joined] {
      workers_.join();
      joined->set_value();
    });
    if (joined->get_future().wait_for(timeout) != std::future_status::ready) {
      joiner.detach();  // the caller ends the process
      return false;
    }
    joiner.join();
    return true;
  }

  // Labels of a metric must be few, whatever clients ask for.
  static std::string metric_path(const Exchange& exchange) {
    const std::string& path = exchange.request().path;
    return Service::has_route(path) ? path : "other";
  }
  static std::string metric_method(const Exchange& exchange) {
    static const std::unordered_set<std::string> known = {"GET", "HEAD", "POST", "OPTIONS"};
    const std::string& method = exchange.request().method;
    return known.count(method) > 0 ? method : "other";
  }

  void listen() {
    if (config_.unix_socket.empty()) {
      listen_on_tcp();
    } else {
      listen_on_unix_socket();
    }
    acceptor_->listen(4096);
  }

  void listen_on_tcp() {
    error_code error;
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(
        config_.host, std::to_string(config_.port),
        asio::ip::tcp::resolver::passive | asio::ip::tcp::resolver::numeric_service, error);
    if (error) throw std::runtime_error("--host " + config_.host + ": " + error.message());
    const asio::ip::tcp::endpoint endpoint = found.begin()->endpoint();
    asio::ip::tcp::acceptor acceptor(io_, endpoint.protocol());
    acceptor.set_option(asio::socket_base::reuse_address(true));
    acceptor.bind(endpoint, error);
    if (error) {
      throw std::runtime_error("cannot listen on " + config_.host + ":" +
                               std::to_string(config_.port) + ": " + error.message());
    }
    const int port = acceptor.local_endpoint().port();
    const std::string host = endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]"
                                                        : endpoint.address().to_string();
    address_ =
        std::string(tls_ == nullptr ? "http" : "https") + "://" + host + ":" + std::to_string(port);
    const auto protocol = acceptor.local_endpoint().protocol();
    acceptor_.emplace(io_, asio::generic::stream_protocol(protocol), acceptor.release());
    is_tcp_ = true;
    if (!endpoint.address().is_loopback() && !service_.keys().are_required()) {
      log_->write(PINFER_LOG_WARNING,
                  "WARNING: listening on " + address_ +
                      " without an API key: whoever reaches this address can use the model "
                      "(--api-key-file)");
    }
  }

  // Only this user may connect. A socket that a dead server left is taken over.
  void listen_on_unix_socket() {
    const std::string& path = config_.unix_socket;
    asio::local::stream_protocol::socket probe(io_);
    error_code error;
    if (std::filesystem::is_socket(path)) {
      probe.connect(asio::local::stream_protocol::endpoint(path), error);
      if (!error) {
        throw std::runtime_error("--unix-socket " + path + ": another server listens there");
      }
      ::unlink(path.c_str());
    }
    asio::local::stream_protocol::acceptor acceptor(io_, asio::local::stream_protocol());
    const mode_t mask = ::umask(0177);
    try {
      acceptor.bind(asio::local::stream_protocol::endpoint(path), error);
    } catch (const std::exception& failure) {  // a path that is too long
      error = boost::system::errc::make_error_code(boost::system::errc::filename_too_long);
    }
    ::umask(mask);
    if (error) throw std::runtime_error("--unix-socket " + path + ": " + error.message());
    address_ = "unix:" + path;
    acceptor_.emplace(io_, asio::generic::stream_protocol(asio::local::stream_protocol()),
                      acceptor.release());
  }

  asio::awaitable<void> accept() {
    for (;;) {
      error_code error;
      Socket socket(io_);
      co_await acceptor_->async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
      if (error == asio::error::operation_aborted) co_return;
      if (error || num_connections_ >= config_.max_connections) {
        // Out of descriptors, or of places: those that are served go first.
        asio::steady_timer pause(io_, std::chrono::milliseconds(50));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        continue;
      }
      if (is_tcp_) {
        socket.set_option(asio::ip::tcp::no_delay(true), error);
        socket.set_option(asio::socket_base::keep_alive(true), error);
      }
      ++num_connections_;
      asio::co_spawn(io_, serve_connection(std::move(socket), tls_, host_),
                     [this](std::exception_ptr failure) {
                       --num_connections_;
                       if (failure) log_failure(failure);
                     });
    }
  }

  void log_failure(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      log_->write(PINFER_LOG_ERROR, std::string("a connection failed: ") + error.what());
    }
  }

  void ready(std::shared_ptr<Engine> engine) {
    if (service_.is_draining()) return;
    service_.set_engine(std::move(engine));
    log_->write(PINFER_LOG_INFO, "listening on " + address_);
    notify("READY=1\nSTATUS=listening on " + address_);
  }

  void notify(const std::string& lines) {
    const std::string error = notifier_.send(lines);
    if (!error.empty()) log_->write(PINFER_LOG_WARNING, error);
  }

  void watch_engine() {
    service_.watch_engine();
    watch_timer_.expires_after(kWatchInterval);
    watch_timer_.async_wait([this](error_code error) {
      if (!error) watch_engine();
    });
  }

  void wait_for_signal() {
    signals_.async_wait([this](error_code error, int signal) {
      if (error) return;
      if (signal == SIGHUP) {
        reload();
      } else if (service_.is_draining()) {
        end_at_once(1);  // the second one
      } else {
        drain();
      }
      wait_for_signal();
    });
  }

  void reload() {
    try {
      std::shared_ptr<TlsContext> tls = load_tls(config_);
      service_.keys().load(config_.api_keys, config_.api_key_file);
      tls_ = std::move(tls);
      log_->write(PINFER_LOG_INFO, "keys and certificates were read again");
    } catch (const std::exception& error) {
      log_->write(PINFER_LOG_ERROR, std::string(error.what()) + " (the old ones stay)");
    }
  }

  void drain() {
    notify("STOPPING=1\nSTATUS=shutting down");
    if (!service_.has_engine())
      end_at_once(0);  // nothing to wait for; loading cannot be broken off
    service_.start_draining();
    log_->write(PINFER_LOG_INFO, "shutting down: " + std::to_string(exchanges_.size()) +
                                     " requests may end within " +
                                     std::to_string(config_.drain_timeout.count() / 1000) + " s");
    if (exchanges_.empty()) {
      stop();
      return;
    }
    drain_timer_.expires_after(config_.drain_timeout);
    drain_timer_.async_wait([this](error_code error) {
      if (error) return;
      log_->write(PINFER_LOG_WARNING, std::to_string(exchanges_.size()) + " requests are cut off");
      const auto exchanges = exchanges_;
      for (const std::shared_ptr<Exchange>& exchange : exchanges) exchange->cancel();
      drain_timer_.expires_after(kLastWords);
      drain_timer_.async_wait([this](error_code error) {
        if (!error) stop();
      });
    });
  }

  void stop() { io_.stop(); }

  void remove_socket_file() const {
    if (!config_.unix_socket.empty()) ::unlink(config_.unix_socket.c_str());
  }

  [[noreturn]] void end_at_once(int code) const {
    remove_socket_file();
    std::_Exit(code);
  }

  const ServerConfig& config_;
  ServerLog* const log_;
  // Outlives everything that may post to it.
  asio::io_context io_{1};
  asio::thread_pool workers_;
  Service service_;
  ServiceNotifier notifier_;
  ConnectionHost host_;
  std::shared_ptr<TlsContext> tls_;
  std::optional<Acceptor> acceptor_;
  bool is_tcp_ = false;
  std::string address_;
  int num_connections_ = 0;
  std::unordered_set<std::shared_ptr<Exchange>> exchanges_;  // being answered
  asio::signal_set signals_;
  asio::steady_timer watch_timer_, drain_timer_;
};

}  // namespace

int serve(const ServerConfig& config, ServerLog* log, const LoadEngine& load) {
  Server server(config, log);
  return server.run(load);
}

}  // namespace pinfer::server
