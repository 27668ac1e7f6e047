#include "transport/shm/hello.hpp"

#include <sys/socket.h>

#include <array>
#include <cstring>

#include "core/fail.hpp"

namespace shunt::shm {

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
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the system closes further descriptors
  const ssize_t bytes = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message);
      bytes >= 0 && header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    received.descriptor = Descriptor(fd);
  }
  if (bytes != static_cast<ssize_t>(sizeof(received.hello)) || !received.descriptor.valid()) return std::nullopt;
  return received;
}

}  // namespace shunt::shm
