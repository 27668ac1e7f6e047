#include "transport/ucx/free_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/fail.hpp"
#include "transport/descriptor.hpp"

namespace shunt::ucx {
namespace {

/// Binds for a moment, to `port` or to any; 0 if that port is in use.
std::uint16_t try_port(std::uint16_t port) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t length = sizeof(address);
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.get(), generic, sizeof(address)) == 0 && getsockname(socket.get(), generic, &length) == 0)
    return ntohs(address.sin_port);
  if (errno != EADDRINUSE && errno != EACCES) fail_errno("can't look for a free port");
  return 0;
}

}  // namespace

std::uint16_t choose_port(const std::string& range) {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  if (!range.empty() && (std::sscanf(range.c_str(), "%hu-%hu", &first, &last) != 2 || first == 0 || last < first))
    fail(ErrorCode::invalid_argument, "SHUNT_PORT_RANGE='{}': expected first-last", range);
  const auto length = static_cast<std::uint32_t>(last - first) + 1;
  const auto begin = static_cast<std::uint32_t>(getpid());  // ranks of one host start in different places
  for (std::uint32_t i = 0; i < length; ++i)
    if (const auto port = try_port(static_cast<std::uint16_t>(first + (begin + i) % length)); port != 0) return port;
  fail(ErrorCode::system, "all ports of {} are in use", range);
}

bool is_taken(std::uint16_t port) { return try_port(port) == 0; }

}  // namespace shunt::ucx
