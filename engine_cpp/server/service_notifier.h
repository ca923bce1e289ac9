// Tells a service manager how far the server is: sd_notify(3)'s datagrams, without its library.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace pinfer::server {

class ServiceNotifier {
 public:
  // `address` is what the service manager put into NOTIFY_SOCKET: a socket's path, or @NAME for one
  // without a path. Empty: nobody asks.
  explicit ServiceNotifier(std::string address) : address_(std::move(address)) {}

  // Sends lines like "READY=1\nSTATUS=...". Returns why it cannot, or an empty text. Never waits:
  // a manager that does not read must not hold up the server.
  std::string send(std::string_view lines) const;

 private:
  const std::string address_;
};

}  // namespace pinfer::server
