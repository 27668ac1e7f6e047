#include "transport/net/ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <numeric>
#include <random>

#include "core/fail.hpp"

namespace shunt::net {

namespace {

/// Bound to the port; none, with the reason in errno, where that fails.
Descriptor bind_to(std::uint16_t port) {
  Descriptor bound(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const bool ok = bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  return ok ? std::move(bound) : Descriptor();
}

}  // namespace

std::vector<std::uint16_t> ports_of(std::string_view range) {
  if (range.empty()) return {0};
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  const char* const end = range.data() + range.size();
  const auto [dash, first_error] = std::from_chars(range.data(), end, first);
  const bool has_dash = first_error == std::errc() && dash != end && *dash == '-';
  const auto [rest, last_error] = std::from_chars(has_dash ? dash + 1 : end, end, last);
  if (last_error != std::errc() || rest != end || first == 0 || last < first)
    fail(ErrorCode::invalid_argument, "SHUNT_PORT_RANGE='{}': expected first-last", range);
  std::vector<std::uint16_t> ports(static_cast<std::size_t>(last - first) + 1);
  std::iota(ports.begin(), ports.end(), first);
  std::rotate(ports.begin(), ports.begin() + static_cast<std::ptrdiff_t>(std::random_device()() % ports.size()),
              ports.end());
  return ports;
}

Descriptor reserve_port(const std::string& range) {
  for (const std::uint16_t port : ports_of(range)) {
    Descriptor reserved = bind_to(port);
    const int on = 1;  // not before it is bound: it could then share a port that another process has reserved
    if (reserved.valid() && setsockopt(reserved.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0) return reserved;
  }
  fail(ErrorCode::system, "all ports of {} are in use", range);
}

bool is_taken(std::uint16_t port) {
  if (bind_to(port).valid()) return false;
  if (errno != EADDRINUSE) fail_errno("can't ask for port {}", port);
  return true;
}

}  // namespace shunt::net
