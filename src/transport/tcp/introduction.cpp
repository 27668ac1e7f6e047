#include "transport/tcp/introduction.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace shunt::tcp {

bool Introduction::say(const Greeting& greeting) const {
  return ::send(socket_.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting);
}

Introduction::Progress Introduction::hear() {
  const auto bytes = std::as_writable_bytes(std::span(&heard_, 1));
  while (num_heard_ < bytes.size()) {
    const auto rest = bytes.subspan(num_heard_);
    const ssize_t came = recv(socket_.get(), rest.data(), rest.size(), 0);
    if (came > 0)
      num_heard_ += static_cast<std::size_t>(came);
    else if (came == 0 || errno != EINTR)
      return came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? Progress::blocked : Progress::lost;
  }
  return Progress::done;
}

}  // namespace shunt::tcp
