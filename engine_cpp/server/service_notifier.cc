#include "server/service_notifier.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace pinfer::server {

std::string ServiceNotifier::send(std::string_view lines) const {
  if (address_.empty()) return "";
  const std::string where = "NOTIFY_SOCKET " + address_ + ": ";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (address_[0] != '/' && address_[0] != '@') {
    return where + "expected a path or @NAME";
  }
  if (address_.size() >= sizeof(address.sun_path)) return where + "is too long";
  std::memcpy(address.sun_path, address_.data(), address_.size());
  if (address_[0] == '@') address.sun_path[0] = '\0';
  // The name of a socket without a path is all bytes up to this length.
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());

  const int sender = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (sender < 0) return where + std::strerror(errno);
  const ssize_t sent = ::sendto(sender, lines.data(), lines.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                                reinterpret_cast<const sockaddr*>(&address), length);
  const int error = errno;
  ::close(sender);
  return sent < 0 ? where + std::strerror(error) : "";
}

}  // namespace pinfer::server
