// pinfer_asio_server BUNDLE PORT: adds pinfer to a server that lives in one Boost.Asio loop.
//
// The protocol is lines over TCP, so that the example is about the loop: "ping" is answered with
// "pong", and "generate TEXT" with the text in pieces, each "data SIZE\n" and SIZE bytes, until
// "done REASON\n". What matters:
// - The engine calls back on a thread of its own. The callback does one thing: it posts the piece
//   into the loop. All state of the server belongs to the loop's thread, without locks.
// - Nothing in the loop waits for the engine: submit() and abort() return at once.
// - A client that goes away takes its request with it: pinfer::Request aborts when destroyed.
// - SIGTERM or SIGINT: no new clients, answers that are under way are finished; a second one aborts
//   them. The loop ends when the last session has, and only then the engine is closed.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/write.hpp>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <optional>
#include <pinfer/pinfer.hpp>
#include <set>
#include <string>
#include <utility>

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

class Session;

// What sessions share; of the loop's thread.
struct Server {
  pinfer::Engine& engine;
  std::set<std::shared_ptr<Session>> sessions = {};
  bool stopping = false;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(tcp::socket socket, Server& server) : socket_(std::move(socket)), server_(server) {}

  void read() {
    asio::async_read_until(socket_, asio::dynamic_buffer(input_, kMaxLine), '\n',
                           [self = shared_from_this()](error_code error, size_t size) {
                             if (error) return self->close();
                             const std::string line = self->input_.substr(0, size - 1);
                             self->input_.erase(0, size);
                             self->handle(line);
                             self->read();  // also while it generates: sees the client leave
                           });
  }

  // The server stops: an answer that is under way may end, unless the engine is to abort it.
  void stop(bool abort) {
    if (request_ && abort) request_->abort();
    if (!request_ && output_.empty()) close();
  }

 private:
  static constexpr size_t kMaxLine = 1 << 16;

  void handle(const std::string& line) {
    if (line == "ping") return send("pong\n");
    if (!line.starts_with("generate ")) return send("error unknown command\n");
    if (request_) return send("error one request at a time\n");
    generate(line.substr(line.find(' ') + 1));
  }

  void generate(const std::string& prompt) {
    pinfer::SubmitOptions options;
    options.callback = [executor = socket_.get_executor(),
                        weak = weak_from_this()](pinfer::Output piece) {
      // On the engine's output thread.
      asio::post(executor, [weak, piece = std::move(piece)] {
        if (const std::shared_ptr<Session> session = weak.lock()) session->pass_on(piece);
      });
    };
    try {
      request_ =
          server_.engine.submit(server_.engine.tokenize(prompt),
                                server_.engine.default_sampling_params(), std::move(options));
    } catch (const pinfer::Error& error) {  // too long, no UTF-8, a full queue, ...
      send(std::string("error ") + error.what() + "\n");
    }
  }

  void pass_on(const pinfer::Output& piece) {
    if (!request_) return;  // closed while the piece was on its way
    if (!piece.text.empty()) {
      send("data " + std::to_string(piece.text.size()) + "\n" + piece.text);
    }
    if (!piece.finished()) return;
    request_.reset();
    send("done " + piece.finish_reason + "\n");
  }

  void send(std::string text) {
    output_.push_back(std::move(text));
    if (output_.size() == 1) write();
  }

  void write() {
    asio::async_write(socket_, asio::buffer(output_.front()),
                      [self = shared_from_this()](error_code error, size_t) {
                        if (error) return self->close();
                        self->output_.pop_front();
                        if (!self->output_.empty()) return self->write();
                        if (self->server_.stopping && !self->request_) self->close();
                      });
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    request_.reset();  // aborts it
    server_.sessions.erase(shared_from_this());
  }

  tcp::socket socket_;
  Server& server_;
  std::string input_;
  std::deque<std::string> output_;  // the first one is being written
  std::optional<pinfer::Request> request_;
};

void accept(tcp::acceptor& acceptor, Server& server) {
  acceptor.async_accept([&](error_code error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (!error) {
      const auto session = std::make_shared<Session>(std::move(socket), server);
      server.sessions.insert(session);
      session->read();
    }
    accept(acceptor, server);
  });
}

void wait_for_signal(asio::signal_set& signals, tcp::acceptor& acceptor, Server& server) {
  signals.async_wait([&](error_code error, int) {
    if (error) return;
    error_code ignored;
    acceptor.close(ignored);
    const bool again = std::exchange(server.stopping, true);
    const auto sessions = server.sessions;  // stop() may take one out
    for (const std::shared_ptr<Session>& session : sessions) session->stop(/*abort=*/again);
    wait_for_signal(signals, acceptor, server);
  });
}

void serve(const std::string& bundle, unsigned short port) {
  asio::io_context loop(/*concurrency_hint=*/1);
  pinfer::Engine engine(bundle);  // after the loop: its threads end before the loop does
  Server server{engine};
  tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), port});
  asio::signal_set signals(loop, SIGINT, SIGTERM);
  accept(acceptor, server);
  wait_for_signal(signals, acceptor, server);
  std::cout << "listening on " << acceptor.local_endpoint().port() << std::endl;
  // A loop that has other things to do runs on its own; this one ends with its last session.
  while (!server.stopping || !server.sessions.empty()) loop.run_one();
  std::cout << "stopped" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: pinfer_asio_server BUNDLE PORT\n";
    return 2;
  }
  try {
    serve(argv[1], static_cast<unsigned short>(std::atoi(argv[2])));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
