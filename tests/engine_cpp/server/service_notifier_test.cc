#include "server/service_notifier.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace pinfer::server {
namespace {

// A service manager's end: a datagram socket with a path, or without one (name begins with '\0').
class Manager {
 public:
  explicit Manager(const std::string& name) : socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof(address.sun_path));
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    is_bound_ = ::bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }
  ~Manager() { ::close(socket_); }

  bool is_bound() const { return is_bound_; }
  // The next datagram; "" if none waits.
  std::string receive() const {
    char buffer[256];
    const ssize_t size = ::recv(socket_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(buffer, static_cast<size_t>(size));
  }

 private:
  int socket_;
  bool is_bound_ = false;
};

TEST(ServiceNotifier, SendsToAPath) {
  std::string folder = ::testing::TempDir() + "notifyXXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/notify";
  {
    const Manager manager(path);
    ASSERT_TRUE(manager.is_bound());
    const ServiceNotifier notifier(path);
    EXPECT_EQ(notifier.send("READY=1\nSTATUS=serves"), "");
    EXPECT_EQ(notifier.send("STOPPING=1"), "");
    EXPECT_EQ(manager.receive(), "READY=1\nSTATUS=serves");
    EXPECT_EQ(manager.receive(), "STOPPING=1");
    EXPECT_EQ(manager.receive(), "");
  }
  ::unlink(path.c_str());
  ::rmdir(folder.c_str());
}

TEST(ServiceNotifier, SendsToANameWithoutAPath) {
  const std::string name = "pinfer-test-" + std::to_string(::getpid());
  const Manager manager(std::string(1, '\0') + name);
  ASSERT_TRUE(manager.is_bound());
  EXPECT_EQ(ServiceNotifier("@" + name).send("READY=1"), "");
  EXPECT_EQ(manager.receive(), "READY=1");
}

TEST(ServiceNotifier, NobodyAsks) { EXPECT_EQ(ServiceNotifier("").send("READY=1"), ""); }

TEST(ServiceNotifier, SaysWhyItCannot) {
  const auto error = [](const std::string& address) {
    return ServiceNotifier(address).send("READY=1");
  };
  EXPECT_EQ(error("/no/such/socket"), "NOTIFY_SOCKET /no/such/socket: No such file or directory");
  EXPECT_NE(error("vsock:2:1234").find("expected a path or @NAME"), std::string::npos);
  EXPECT_NE(error("/" + std::string(200, 'x')).find("is too long"), std::string::npos);
}

// The manager's queue is bounded: what does not fit is an error, not a wait.
TEST(ServiceNotifier, DoesNotWaitForAManagerThatDoesNotRead) {
  const std::string name = "pinfer-full-" + std::to_string(::getpid());
  const Manager manager(std::string(1, '\0') + name);
  ASSERT_TRUE(manager.is_bound());
  const ServiceNotifier notifier("@" + name);
  std::string error;
  for (int i = 0; i < 100'000 && error.empty(); ++i) error = notifier.send("STATUS=again");
  EXPECT_NE(error, "");
}

}  // namespace
}  // namespace pinfer::server
