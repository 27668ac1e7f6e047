#include "transport/ucx/free_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/fail.hpp"

namespace shunt::ucx {

bool is_taken(std::uint16_t port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return false;
  if (errno != EADDRINUSE) fail_errno("can't ask for port {}", port);
  return true;
}

}  // namespace shunt::ucx
