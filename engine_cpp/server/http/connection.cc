#include "server/http/connection.h"

#include <poll.h>

#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <chrono>
#include <deque>
#include <optional>

#include "server/api_error.h"
#include "server/random_id.h"

namespace pinfer::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using PlainStream = beast::basic_stream<asio::generic::stream_protocol>;
using TlsStream = beast::ssl_stream<PlainStream>;

constexpr std::chrono::milliseconds kWatchInterval{100};
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kMaxRequestIdSize = 128;

// A client's id is echoed and logged: printable characters only.
std::string request_id(const std::string* given) {
  if (given == nullptr || given->empty() || given->size() > kMaxRequestIdSize) return random_id();
  for (const char c : *given) {
    if (c <= 0x20 || c >= 0x7f) return random_id();
  }
  return *given;
}

std::string_view as_view(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// "http://host/path?query" and "/path?query" -> "/path".
std::string_view path_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    const size_t path = target.find('/', scheme.size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
    break;
  }
  return target.substr(0, target.find_first_of("?#"));
}

// What comes before the body.
template <typename Message>
HttpRequest read_head(const Message& message) {
  HttpRequest request;
  request.method = as_view(message.method_string());
  request.path = path_of(as_view(message.target()));
  for (const auto& field : message) {
    request.headers.emplace_back(lower_case(as_view(field.name_string())), as_view(field.value()));
  }
  request.id = request_id(request.header("x-request-id"));
  request.is_http_1_0 = message.version() < 11;
  return request;
}

// What would be read otherwise than the client, or a proxy before us, means it.
template <typename Message>
void check_framing(const Message& message, uint32_t max_header, uint32_t max_url) {
  size_t size = message.method_string().size() + message.target().size() + 12;
  for (const auto& field : message) size += field.name_string().size() + field.value().size() + 4;
  if (size > max_header) {
    throw ApiError(431, "the header is longer than " + std::to_string(max_header) + " bytes");
  }
  if (message.target().size() > max_url) {
    throw ApiError(414, "the URL is longer than " + std::to_string(max_url) + " bytes");
  }
  const auto num_hosts = message.count(http::field::host);
  if (num_hosts > 1 || (num_hosts == 0 && message.version() >= 11)) {
    throw ApiError(400, "expected one Host header, found " + std::to_string(num_hosts));
  }
  const auto num_codings = message.count(http::field::transfer_encoding);
  if (num_codings == 0) return;
  if (num_codings > 1 || !beast::iequals(message[http::field::transfer_encoding], "chunked")) {
    throw ApiError(501, "Transfer-Encoding: expected chunked");
  }
  if (message.count(http::field::content_length) > 0) {
    throw ApiError(400, "Transfer-Encoding and Content-Length: expected one of them");
  }
}

std::string chunk(std::string_view data) {
  char size[24];
  std::snprintf(size, sizeof(size), "%zx\r\n", data.size());
  return std::string(size).append(data).append("\r\n");
}

// What the exchange and the connection's coroutine share. Filled by any thread through the
// executor, read by the coroutine: so there is nothing to lock.
struct Answer {
  explicit Answer(const asio::any_io_executor& executor) : changed(executor) {
    changed.expires_at(asio::steady_timer::time_point::max());
  }
  asio::steady_timer changed;  // cancelled when something below changes
  Headers headers;
  std::optional<HttpResponse> response;
  bool events = false;  // the head of an event stream is to be sent
  std::deque<std::string> unsent;
  uint64_t num_unsent_bytes = 0;
  bool ended = false;
  bool dropped = false;  // nothing is written any more
  int status = 0;
};

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(HttpRequest request, asio::any_io_executor executor, uint64_t max_unsent)
      : Exchange(std::move(request)),
        executor_(std::move(executor)),
        max_unsent_(max_unsent),
        answer_(std::make_shared<Answer>(executor_)) {}

  const std::shared_ptr<Answer>& answer() const { return answer_; }

  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  void respond(HttpResponse response) override {
    change([headers = std::move(headers_), response = std::move(response)](Answer& answer) mutable {
      if (answer.response.has_value() || answer.events) return;
      answer.headers = std::move(headers);
      answer.response = std::move(response);
      answer.ended = true;
    });
  }

  void start_events() override {
    change([headers = std::move(headers_)](Answer& answer) mutable {
      if (answer.response.has_value() || answer.events) return;
      answer.headers = std::move(headers);
      answer.events = true;
    });
  }

  void send_event(std::string data) override {
    std::string event = "data: " + std::move(data) + "\n\n";
    change([this, self = shared(), event = std::move(event)](Answer& answer) mutable {
      if (answer.dropped) return;
      answer.num_unsent_bytes += event.size();
      answer.unsent.push_back(std::move(event));
      // A client that does not read: what it is owed must not fill the memory.
      if (answer.num_unsent_bytes > max_unsent_) {
        answer.dropped = true;
        cancel();
      }
    });
  }

  void end_events() override {
    change([](Answer& answer) { answer.ended = true; });
  }

  void set_self(const std::shared_ptr<ConnectionExchange>& self) { self_ = self; }

 private:
  std::shared_ptr<ConnectionExchange> shared() const { return self_.lock(); }

  template <typename Change>
  void change(Change&& change) {
    asio::post(executor_, [answer = answer_, change = std::forward<Change>(change)]() mutable {
      change(*answer);
      answer->changed.cancel();
    });
  }

  const asio::any_io_executor executor_;
  const uint64_t max_unsent_;
  const std::shared_ptr<Answer> answer_;
  std::weak_ptr<ConnectionExchange> self_;
  Headers headers_;  // until the answer begins
};

// Whether the peer has closed its side (half), or the connection is gone (whole).
struct PeerState {
  bool half_closed = false;
  bool gone = false;
};

PeerState peer_state(int socket) {
  pollfd poll{socket, POLLRDHUP, 0};
  if (::poll(&poll, 1, 0) <= 0) return {};
  return {(poll.revents & POLLRDHUP) != 0, (poll.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0};
}

// Stream: PlainStream or TlsStream.
template <typename Stream>
class Connection {
 public:
  static constexpr bool kIsTls = std::is_same_v<Stream, TlsStream>;

  Connection(Stream stream, const ConnectionHost& host)
      : stream_(std::move(stream)), host_(host), config_(*host.config) {}

  asio::awaitable<void> serve() {
    if constexpr (kIsTls) {
      error_code error;
      lowest().expires_after(config_.header_timeout);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, token(error));
      if (error) co_return;
    }
    bool is_first = true;
    while (co_await serve_one(is_first)) is_first = false;
    co_await close();
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  static auto token(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }
  PlainStream& lowest() { return beast::get_lowest_layer(stream_); }

  // Reads a request and answers it; false when the connection should end.
  asio::awaitable<bool> serve_one(bool is_first) {
    error_code error;
    if (buffer_.size() == 0) {
      // Silence between requests is no fault; it ends without a word.
      lowest().expires_after(is_first ? config_.header_timeout : config_.keep_alive_timeout);
      const size_t size = co_await stream_.async_read_some(buffer_.prepare(8192), token(error));
      if (error) co_return false;
      buffer_.commit(size);
    }
    skip_empty_lines();
    Parser parser;
    parser.header_limit(config_.max_header);
    parser.body_limit(config_.max_body);
    lowest().expires_after(config_.header_timeout);
    co_await http::async_read_header(stream_, buffer_, parser, token(error));
    if (error) {
      // A length that is too large is known with the header. (No temporaries in a condition inside
      // co_await: gcc 12 destroys them twice.)
      HttpRequest request;
      if (error == http::error::body_limit) request = read_head(parser.get());
      co_await refuse(error, std::move(request));
      co_return false;
    }
    auto& message = parser.get();
    HttpRequest request = read_head(message);
    std::optional<ApiError> fault;
    try {
      check_framing(message, config_.max_header, config_.max_url);
    } catch (const ApiError& found) {
      fault = found;
    }
    if (fault.has_value()) {
      co_await refuse(*fault, std::move(request));
      co_return false;
    }
    if (!parser.is_done() && co_await refuse_early(request)) co_return false;
    if (!request.is_http_1_0 && beast::iequals(message[http::field::expect], "100-continue")) {
      lowest().expires_after(config_.write_timeout);
      if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return false;
    }
    lowest().expires_after(config_.body_timeout);
    co_await http::async_read(stream_, buffer_, parser, token(error));
    if (error) {
      co_await refuse(error, std::move(request));
      co_return false;
    }
    keep_alive_ = message.keep_alive();
    request.body = std::move(message.body());
    co_return co_await answer(std::move(request));
  }

  // Some clients end a body with a line that is not counted.
  void skip_empty_lines() {
    const auto is_line_end = [&] {
      const auto bytes = static_cast<const char*>(buffer_.data().data());
      return buffer_.size() >= 2 && bytes[0] == '\r' && bytes[1] == '\n';
    };
    while (is_line_end()) buffer_.consume(2);
  }

  std::shared_ptr<ConnectionExchange> make_exchange(HttpRequest request) {
    auto exchange = std::make_shared<ConnectionExchange>(std::move(request), stream_.get_executor(),
                                                         config_.max_unsent);
    exchange->set_self(exchange);
    exchange->add_header("X-Request-Id", exchange->request().id);
    return exchange;
  }

  // True if the request was refused for what stands before its body, which stays unread.
  asio::awaitable<bool> refuse_early(const HttpRequest& request) {
    const Clock::time_point begin = Clock::now();
    const auto exchange = make_exchange(request);
    if (!host_.refuse_early(exchange)) co_return false;
    keep_alive_ = false;
    co_await answer_begun(exchange, begin);
    co_return true;
  }

  asio::awaitable<bool> answer(HttpRequest request) {
    const Clock::time_point begin = Clock::now();
    const auto exchange = make_exchange(std::move(request));
    host_.handle(exchange);
    co_return co_await answer_begun(exchange, begin);
  }

  // Writes the answer as it is made. The exchange has been handled since `begin`.
  asio::awaitable<bool> answer_begun(std::shared_ptr<ConnectionExchange> exchange,
                                     Clock::time_point begin) {
    const std::shared_ptr<Answer> state = exchange->answer();
    num_written_ = 0;
    host_.track(exchange, true);
    watch(exchange);
    const bool written = co_await write_answer(*exchange, *state);
    state->dropped = true;
    if (!written) exchange->cancel();
    exchange->forget_cancel();
    stop_watching();
    host_.track(exchange, false);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    host_.done(*exchange, written ? state->status : 499, num_written_, ms);
    co_return written&& keep_alive_;
  }

  // False if the client is gone before all was written.
  asio::awaitable<bool> write_answer(const Exchange& exchange, Answer& answer) {
    const bool is_head = exchange.request().method == "HEAD";
    const bool chunked = !exchange.request().is_http_1_0;
    bool head_sent = false;
    Clock::time_point last_write = Clock::now();
    for (;;) {
      if (answer.dropped) co_return false;
      if (answer.response.has_value()) {
        answer.status = answer.response->status;
        std::string bytes = head(answer, &*answer.response);
        if (!is_head) bytes += answer.response->body;
        co_return co_await write(std::move(bytes));
      }
      std::string bytes;
      if (answer.events && !head_sent) {
        if (!chunked) keep_alive_ = false;
        answer.status = 200;
        bytes = head(answer, nullptr, chunked);
        head_sent = true;
      }
      std::string events;
      for (std::string& event : answer.unsent) events += event;
      answer.unsent.clear();
      answer.num_unsent_bytes = 0;
      const auto now = Clock::now();
      if (head_sent && events.empty() && (probe_ || now - last_write > config_.event_ping)) {
        events = ": \n\n";
        probe_ = false;
      }
      if (!events.empty()) bytes += chunked ? chunk(events) : events;
      const bool last = answer.ended;
      if (last && chunked && head_sent) bytes += "0\r\n\r\n";
      if (!bytes.empty()) {
        last_write = now;
        if (!co_await write(std::move(bytes))) co_return false;
      }
      if (last) co_return true;
      if (probe_ && !head_sent && chunked && !is_head) {
        // The client has closed its side. Whether it still reads shows when something is sent.
        probe_ = false;
        if (!co_await write("HTTP/1.1 102 Processing\r\n\r\n")) co_return false;
      }
      if (!answer.unsent.empty() || answer.ended || answer.response.has_value() || answer.dropped ||
          probe_) {
        continue;
      }
      error_code ignored;
      answer.changed.expires_after(head_sent ? config_.event_ping : std::chrono::hours(24));
      co_await answer.changed.async_wait(token(ignored));
    }
  }

  // `response`: null for an event stream.
  std::string head(const Answer& answer, const HttpResponse* response, bool chunked = false) {
    if (host_.is_draining()) keep_alive_ = false;
    const auto status = static_cast<unsigned>(response == nullptr ? 200 : response->status);
    std::string text = "HTTP/1.1 " + std::to_string(status) + " ";
    text += as_view(http::obsolete_reason(static_cast<http::status>(status)));
    text += "\r\nServer: pinfer\r\n";
    const auto add = [&](std::string_view name, std::string_view value) {
      text.append(name).append(": ").append(value).append("\r\n");
    };
    for (const auto& [name, value] : answer.headers) add(name, value);
    if (response == nullptr) {
      add("Content-Type", "text/event-stream; charset=utf-8");
      add("Cache-Control", "no-cache");
      add("X-Accel-Buffering", "no");
      if (chunked) add("Transfer-Encoding", "chunked");
    } else {
      for (const auto& [name, value] : response->headers) add(name, value);
      if (!response->content_type.empty()) add("Content-Type", response->content_type);
      if (status != 204) add("Content-Length", std::to_string(response->body.size()));
    }
    add("Connection", keep_alive_ ? "keep-alive" : "close");
    return text + "\r\n";
  }

  asio::awaitable<bool> write(std::string bytes) {
    error_code error;
    lowest().expires_after(config_.write_timeout);
    num_written_ += co_await asio::async_write(stream_, asio::buffer(bytes), token(error));
    co_return !error;
  }

  // A request that could not be read. After a timeout the socket is closed already.
  asio::awaitable<void> refuse(error_code error, HttpRequest request) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      co_await refuse(ApiError(431, "the header is longer than " +
                                        std::to_string(config_.max_header) + " bytes"),
                      std::move(request));
    } else if (error == http::error::body_limit) {
      co_await refuse(
          ApiError(413, "the body is longer than " + std::to_string(config_.max_body) + " bytes"),
          std::move(request));
    } else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message) {
      co_await refuse(ApiError(400, "not a valid HTTP request: " + error.message()),
                      std::move(request));
    }
  }

  asio::awaitable<void> refuse(ApiError error, HttpRequest request) {
    keep_alive_ = false;
    if (request.id.empty()) request.id = random_id();
    const auto exchange = make_exchange(std::move(request));
    host_.add_headers(exchange);
    exchange->respond(error.response());
    co_await answer_begun(exchange, Clock::now());
  }

  // What the client still sends is read for a while: an answer that meets a closed socket's reset
  // would be lost.
  asio::awaitable<void> close() {
    error_code error;
    if constexpr (kIsTls) {
      lowest().expires_after(kLingerTime);
      co_await stream_.async_shutdown(token(error));
    }
    lowest().socket().shutdown(asio::socket_base::shutdown_send, error);
    if (error) co_return;
    const Clock::time_point end = Clock::now() + kLingerTime;
    char discarded[16384];
    while (Clock::now() < end) {
      lowest().expires_at(end);
      co_await lowest().async_read_some(asio::buffer(discarded), token(error));
      if (error) co_return;
    }
  }

  // While an answer is made: cancels the exchange when the client has gone.
  void watch(const std::shared_ptr<ConnectionExchange>& exchange) {
    probe_ = false;
    watched_ = exchange;
    lowest().socket().async_wait(
        asio::socket_base::wait_read,
        [this, watch = std::weak_ptr<Watch>(watch_ = std::make_shared<Watch>())](error_code error) {
          if (!error && watch.lock() != nullptr) check_peer(/*told=*/false);
        });
  }

  void check_peer(bool told) {
    const PeerState peer = peer_state(lowest().socket().native_handle());
    const bool counts_as_gone = peer.half_closed && (kIsTls || watched_->request().is_http_1_0);
    Answer& answer = *watched_->answer();
    if (peer.gone || counts_as_gone) {
      answer.dropped = true;
      watched_->cancel();
      answer.changed.cancel();
      return;
    }
    if (peer.half_closed && !told) {
      told = probe_ = true;
      answer.changed.cancel();
    }
    // There may be data of a next request, behind which the socket cannot be waited for.
    watch_timer_.emplace(stream_.get_executor(), kWatchInterval);
    watch_timer_->async_wait([this, told, watch = std::weak_ptr<Watch>(watch_)](error_code error) {
      if (!error && watch.lock() != nullptr) check_peer(told);
    });
  }

  void stop_watching() {
    watch_ = nullptr;
    watched_ = nullptr;
    if (watch_timer_.has_value()) watch_timer_->cancel();
    error_code ignored;
    lowest().socket().cancel(ignored);
  }

  Stream stream_;
  const ConnectionHost& host_;
  const ServerConfig& config_;
  beast::flat_buffer buffer_;
  bool keep_alive_ = true;
  bool probe_ = false;  // the client has closed its side: send something to see if it reads
  uint64_t num_written_ = 0;
  // Handlers of a watch may come after its end, and after that of this object: they hold a weak
  // pointer to it.
  struct Watch {};
  std::shared_ptr<Watch> watch_;
  std::shared_ptr<ConnectionExchange> watched_;
  std::optional<asio::steady_timer> watch_timer_;
};

}  // namespace

asio::awaitable<void> serve_connection(Socket socket, std::shared_ptr<TlsContext> tls,
                                       const ConnectionHost& host) {
  if (tls == nullptr) {
    Connection<PlainStream> connection(PlainStream(std::move(socket)), host);
    co_await connection.serve();
  } else {
    Connection<TlsStream> connection(TlsStream(PlainStream(std::move(socket)), *tls), host);
    co_await connection.serve();
  }
}

}  // namespace pinfer::server
