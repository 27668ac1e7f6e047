#include "transport/net/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <random>

#include "core/fail.hpp"

namespace shunt::net {

std::uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return 0;
}

Descriptor reserve_port(const std::string& range) {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  if (!range.empty() && (std::sscanf(range.c_str(), "%hu-%hu", &first, &last) != 2 || first == 0 || last < first))
    fail(ErrorCode::invalid_argument, "SHUNT_PORT_RANGE='{}': expected first-last", range);
  const auto length = static_cast<std::uint32_t>(last - first) + 1;
  const std::uint32_t begin = std::random_device()() % length;  // ranks of one host start in different places
  for (std::uint32_t i = 0; i < length; ++i) {
    Descriptor reserved(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(first + (begin + i) % length));
    if (bind(reserved.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) continue;
    const int on = 1;  // not before: then it could share a port that somebody else has reserved
    if (setsockopt(reserved.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0) return reserved;
  }
  fail(ErrorCode::system, "all ports of {} are in use", range);
}

}  // namespace shunt::net
