#include "transport/ucx/free_port.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/fail.hpp"
#include "transport/descriptor.hpp"
#include "transport/port_range.hpp"

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
  for (const std::uint16_t candidate : ports_of(range))
    if (const std::uint16_t port = try_port(candidate); port != 0) return port;
  fail(ErrorCode::system, "all ports of {} are in use", range);
}

bool is_taken(std::uint16_t port) { return try_port(port) == 0; }

}  // namespace shunt::ucx
