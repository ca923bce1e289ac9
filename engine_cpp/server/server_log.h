// Log lines of the server, on stderr: text, or one JSON object a line. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "pinfer/pinfer.h"
#include "server/http/exchange.h"

namespace pinfer::server {

class ServerLog {
 public:
  ServerLog(pinfer_log_level level, bool as_json) : level_(level), as_json_(as_json) {}

  bool is_on(pinfer_log_level level) const { return level >= level_; }
  void write(pinfer_log_level level, const std::string& message);
  // The line of an answered request, at level info; never what it said. 499: the client had gone.
  void write_access(const Exchange& exchange, int status, uint64_t bytes, double milliseconds);

 private:
  void print(const std::string& line);

  const pinfer_log_level level_;
  const bool as_json_;
  std::mutex mutex_;
};

}  // namespace pinfer::server
