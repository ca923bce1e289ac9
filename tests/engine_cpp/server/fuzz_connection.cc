// libFuzzer: any bytes from a client, in one piece or in two. The connection ends, the answers
// begin with a status line, and every exchange that was begun has been ended.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "server/http/asio.h"
#include "server/http/connection.h"

namespace {

namespace asio = boost::asio;
using pinfer::server::Exchange;

// Answers by the path: at once, as events, or not before it is cancelled.
void answer(const std::shared_ptr<Exchange>& exchange) {
  const std::string& path = exchange->request().path;
  if (path.starts_with("/e")) {
    exchange->start_events();
    exchange->send_event("{}");
    exchange->send_event("[DONE]");
    exchange->end_events();
  } else if (path.starts_with("/w")) {
    exchange->on_cancel([exchange] { exchange->respond({.status = 503}); });
  } else {
    exchange->respond({.body = exchange->request().body});
  }
}

struct Host {
  Host() {
    config.header_timeout = config.body_timeout = config.write_timeout =
        std::chrono::milliseconds(2000);
    config.keep_alive_timeout = std::chrono::milliseconds(2000);
    config.max_body = 1 << 16;
    config.max_header = 4096;
    config.max_url = 1024;
    host.config = &config;
    host.handle = answer;
    host.refuse_early = [](const std::shared_ptr<Exchange>& exchange) {
      if (!exchange->request().path.starts_with("/no")) return false;
      exchange->respond({.status = 401});
      return true;
    };
    host.add_headers = [](const std::shared_ptr<Exchange>&) {};
    host.done = [](const Exchange&, int, uint64_t, double) {};
    host.track = [this](const std::shared_ptr<Exchange>&, bool begins) {
      num_open += begins ? 1 : -1;
    };
    host.is_draining = [] { return false; };
  }
  pinfer::server::ServerConfig config;
  pinfer::server::ConnectionHost host;
  int num_open = 0;
};

void send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(socket, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Host host;
  if (size == 0) return 0;
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::abort();
  asio::io_context io(1);
  pinfer::server::Socket socket(io, asio::generic::stream_protocol(asio::local::stream_protocol()),
                                sockets[0]);
  asio::co_spawn(io, pinfer::server::serve_connection(std::move(socket), nullptr, host.host),
                 [](std::exception_ptr failure) {
                   if (failure) std::abort();
                 });
  const char* bytes = reinterpret_cast<const char*>(data) + 1;
  const size_t first = data[0] * (size - 1) / 256;
  send_all(sockets[1], bytes, first);
  io.poll();
  send_all(sockets[1], bytes + first, size - 1 - first);
  io.poll();
  char begin[9] = {};
  const ssize_t received = ::recv(sockets[1], begin, sizeof(begin), MSG_DONTWAIT);
  if (received > 0 && std::string_view(begin, static_cast<size_t>(received)) !=
                          std::string_view("HTTP/1.1 ").substr(0, static_cast<size_t>(received))) {
    std::abort();
  }
  ::close(sockets[1]);  // the client goes
  io.run_for(std::chrono::seconds(5));
  if (!io.stopped() || host.num_open != 0) std::abort();
  return 0;
}
