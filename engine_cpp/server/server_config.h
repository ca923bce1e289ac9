// How the server is set up; the command line fills it (cli/serve_command.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pinfer::server {

struct ServerConfig {
  std::string host = "127.0.0.1";
  int port = 8000;                              // 0: any free one, printed at start
  std::string unix_socket;                      // a path: listen there instead
  std::vector<std::string> served_model_names;  // empty: the bundle's model_name

  std::vector<std::string> api_keys;
  std::string api_key_file;               // one key a line; read again on SIGHUP
  std::string tls_cert, tls_key;          // PEM files, both or none; read again on SIGHUP
  std::vector<std::string> cors_origins;  // "*": any

  std::chrono::milliseconds drain_timeout{30'000};
  std::chrono::milliseconds header_timeout{20'000};
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{60'000};
  std::chrono::milliseconds keep_alive_timeout{75'000};  // between the requests of a connection
  std::chrono::milliseconds event_ping{15'000};          // a comment in silent event streams
  std::chrono::milliseconds stuck_after{60'000};         // no step while requests run: not healthy

  uint64_t max_body = uint64_t{32} << 20;    // bytes
  uint32_t max_header = 16 << 10;            // bytes, request line included
  uint32_t max_url = 8 << 10;                // bytes
  uint64_t max_unsent = uint64_t{16} << 20;  // bytes of an answer that its client does not read
  int max_queue = 0;  // the engine's: /ready says no while so many requests wait; 0 = no limit
  int max_connections = 10'000;
  int num_workers = 2;  // threads that parse, tokenise and word answers

  std::string notify_socket;  // where a service manager hears what becomes of the server

  bool log_as_json = false;
  bool log_requests = false;  // the bodies of requests, at level debug
};

}  // namespace pinfer::server
