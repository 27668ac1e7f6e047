#include "transport/net/receive.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace shunt::net {

Progress receive(int socket, std::span<std::byte> bytes, std::size_t& num_received) {
  while (num_received < bytes.size()) {
    const auto rest = bytes.subspan(num_received);
    const ssize_t came = recv(socket, rest.data(), rest.size(), 0);
    if (came == 0) return Progress::ended;
    if (came > 0)
      num_received += static_cast<std::size_t>(came);
    else if (errno != EINTR)
      return blocked_or_lost();
  }
  return Progress::done;
}

Progress blocked_or_lost() { return errno == EAGAIN || errno == EWOULDBLOCK ? Progress::blocked : Progress::lost; }

}  // namespace shunt::net
