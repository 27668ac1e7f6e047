// TCP ports of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shunt/error.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::net {

/// The ports of "first-last" in the order to try them, which starts at random; for an empty range 0, which is any port.
/// Throws Error(invalid_argument).
std::vector<std::uint16_t> ports_of(std::string_view range);

/// A socket at an unused port of such a range. As long as it is open the system gives the port to no other socket, but
/// a listener that reuses addresses can have it. Throws as ports_of, and Error(system) where all of it is in use.
Descriptor reserve_port(const std::string& range);

[[nodiscard]] bool is_taken(std::uint16_t port);

/// For a library that listens by itself and can't be handed a socket: calls listen(port), and again with another port
/// if that threw because another process took the port before it.
template <class Listen>
void listen_at_free_port(const std::string& range, const Listen& listen) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    const std::uint16_t port = port_of(reserve_port(range).get());
    try {
      return listen(port);
    } catch (const Error&) {
      if (attempt == kAttempts || !is_taken(port)) throw;
    }
  }
}

}  // namespace shunt::net
