#include "transport/shm/local_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/fail.hpp"

namespace shunt::shm {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;

  explicit AbstractAddress(const std::string& name) {
    address.sun_family = AF_UNIX;
    // A leading zero byte makes the name abstract.
    const std::size_t kept = std::min(name.size(), sizeof(address.sun_path) - 1);
    std::memcpy(address.sun_path + 1, name.data(), kept);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kept);
  }
  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

bool is_of_this_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

Descriptor listen_at(const std::string& name) {
  Descriptor listener(socket(AF_UNIX, kType, 0));
  if (!listener.valid()) fail_errno("can't open a socket");
  const AbstractAddress address(name);
  if (bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), SOMAXCONN) != 0)
    fail_errno("can't listen as '{}'", name);
  return listener;
}

Connecting connect_to(const std::string& name) {
  Descriptor connecting(socket(AF_UNIX, kType, 0));
  if (!connecting.valid()) fail_errno("can't open a socket");
  const AbstractAddress address(name);
  if (connect(connecting.get(), address.get(), address.length) != 0) return {{}, errno == EAGAIN || errno == EINTR};
  if (!is_of_this_user(connecting)) fail(ErrorCode::system, "another user listens as '{}'", name);
  return {std::move(connecting)};
}

std::optional<Descriptor> accept_from(const Descriptor& listener) {
  Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!accepted.valid() && errno != EINTR && errno != EAGAIN && errno != ECONNABORTED)
    fail_errno("can't accept a connection");
  if (!accepted.valid() || !is_of_this_user(accepted)) return std::nullopt;
  return accepted;
}

std::pair<Descriptor, Descriptor> socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, kType, 0, ends.data()) != 0) fail_errno("can't open a pair of sockets");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Sent send_hello(const Descriptor& socket, const Hello& hello, int fd) {
  iovec body = {const_cast<Hello*>(&hello), sizeof(hello)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fd))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  if (sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(hello))) return Sent::done;
  if (errno == ETOOMANYREFS || errno == EAGAIN || errno == EINTR) return Sent::again;
  if (errno != EPIPE && errno != ECONNRESET) fail_errno("can't send a descriptor");
  return Sent::gone;
}

std::optional<ReceivedHello> receive_hello(const Descriptor& socket) {
  ReceivedHello received;
  iovec body = {&received.hello, sizeof(received.hello)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the system closes what else a stranger sends
  const ssize_t bytes = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
      bytes >= 0 && header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    received.descriptor = Descriptor(fd);
  }
  if (bytes != static_cast<ssize_t>(sizeof(received.hello)) || (message.msg_flags & MSG_TRUNC) != 0 ||
      !received.descriptor.valid())
    return std::nullopt;
  return received;
}

}  // namespace shunt::shm
