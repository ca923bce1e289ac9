// A client's connection: reads requests with limits and timeouts, hands them on, writes the
// answers.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "server/http/asio.h"
#include "server/http/exchange.h"
#include "server/server_config.h"

namespace pinfer::server {

using Socket = boost::asio::generic::stream_protocol::socket;
using TlsContext = boost::asio::ssl::context;

// What connections need of the server. Lives longer than they do.
struct ConnectionHost {
  const ServerConfig* config = nullptr;
  // Starts the answer to a request.
  std::function<void(std::shared_ptr<Exchange>)> handle;
  // Looks at a request whose body has not been read yet. True: it has been answered, the body is
  // not wanted.
  std::function<bool(const std::shared_ptr<Exchange>&)> refuse_early;
  // Adds the headers that every answer carries.
  std::function<void(const std::shared_ptr<Exchange>&)> add_headers;
  // An answer has been written, or given up (then `bytes` is what was written until then).
  std::function<void(const Exchange&, int status, uint64_t bytes, double milliseconds)> done;
  // The exchanges that are being answered, for a server that stops; called with true and false.
  std::function<void(const std::shared_ptr<Exchange>&, bool begins)> track;
  // Whether connections should end after their present request.
  std::function<bool()> is_draining;
};

// Serves the connection until it ends. One thread runs the socket's executor. tls: null for plain.
boost::asio::awaitable<void> serve_connection(Socket socket, std::shared_ptr<TlsContext> tls,
                                              const ConnectionHost& host);

}  // namespace pinfer::server
