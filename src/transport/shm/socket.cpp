#include "transport/shm/socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "core/fail.hpp"

namespace shunt::shm {
namespace {

constexpr int kType = SOCK_SEQPACKET | SOCK_CLOEXEC;

// An ordinary user may have only so many descriptors on their way; those sent before arrive soon.
constexpr std::chrono::seconds kRoomInFlight{10};

bool sleep_before(Deadline deadline) {
  if (std::chrono::steady_clock::now() >= deadline) return false;
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return true;
}

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

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

Descriptor listen_at(const std::string& name) {
  Descriptor listener(socket(AF_UNIX, kType, 0));
  if (!listener.valid()) fail_errno("can't open a socket");
  const AbstractAddress address(name);
  if (bind(listener.get(), address.get(), address.length) != 0)
    fail_errno("can't listen as '{}' (is another world with this job's name being made?)", name);
  if (listen(listener.get(), SOMAXCONN) != 0) fail_errno("can't listen as '{}'", name);
  return listener;
}

std::optional<Descriptor> connect_to(const std::string& name) {
  Descriptor socket_(socket(AF_UNIX, kType, 0));
  if (!socket_.valid()) fail_errno("can't open a socket");
  const AbstractAddress address(name);
  if (connect(socket_.get(), address.get(), address.length) != 0) return std::nullopt;
  if (!same_user(socket_.get())) fail(ErrorCode::system, "another user listens as '{}'", name);
  return socket_;
}

std::optional<Descriptor> accept_from(const Descriptor& listener) {
  Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.valid() && errno != EINTR && errno != ECONNABORTED) fail_errno("can't accept a connection");
  if (!accepted.valid() || !same_user(accepted.get())) return std::nullopt;
  return accepted;
}

std::pair<Descriptor, Descriptor> socket_pair() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, kType, 0, ends.data()) != 0) fail_errno("can't open a pair of sockets");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

bool send_parcel(const Descriptor& socket, const Parcel& parcel, int first_fd, int second_fd) {
  std::array<int, 2> fds = {first_fd, second_fd};
  const std::size_t num_fds = (first_fd >= 0 ? 1u : 0u) + (second_fd >= 0 ? 1u : 0u);
  iovec body = {const_cast<Parcel*>(&parcel), sizeof(parcel)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(fds))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (num_fds > 0) {
    message.msg_control = ancillary.data();
    message.msg_controllen = CMSG_SPACE(num_fds * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(num_fds * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), num_fds * sizeof(int));
  }
  const Deadline deadline = std::chrono::steady_clock::now() + kRoomInFlight;
  ssize_t sent = 0;
  do sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  while (sent < 0 && (errno == EINTR || (errno == ETOOMANYREFS && sleep_before(deadline))));
  if (sent < 0 && errno != EPIPE && errno != ECONNRESET) fail_errno("can't send {} descriptors", num_fds);
  return sent == static_cast<ssize_t>(sizeof(parcel));
}

std::optional<ReceivedParcel> receive_parcel(const Descriptor& socket, Deadline deadline) {
  pollfd entry = {socket.get(), POLLIN, 0};
  if (!wait_ready(std::span(&entry, 1), deadline)) return std::nullopt;
  ReceivedParcel received;
  iovec body = {&received.parcel, sizeof(received.parcel)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> ancillary{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.data();
  message.msg_controllen = ancillary.size();
  const ssize_t bytes = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (cmsghdr* header = CMSG_FIRSTHDR(&message);
      bytes >= 0 && header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    std::array<int, 2> fds = {-1, -1};
    std::memcpy(fds.data(), CMSG_DATA(header), std::min(sizeof(fds), header->cmsg_len - CMSG_LEN(0)));
    received.first = Descriptor(fds[0]);
    received.second = Descriptor(fds[1]);
  }
  if (bytes != static_cast<ssize_t>(sizeof(received.parcel))) return std::nullopt;
  return received;
}

}  // namespace shunt::shm
