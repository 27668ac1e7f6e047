// A port for a library that listens by itself and can't be handed a socket.
#pragma once

#include <cstdint>
#include <string>

#include "shunt/error.hpp"
#include "transport/net/ports.hpp"

namespace shunt::ucx {

[[nodiscard]] bool is_taken(std::uint16_t port);

/// Calls listen(port), and again with another port if that threw because somebody took the port before it.
template <class Listen>
void listen_at_free_port(const std::string& range, const Listen& listen) {
  constexpr int kAttempts = 20;
  for (int attempt = 1;; ++attempt) {
    const std::uint16_t port = net::port_of(net::reserve_port(range).get());
    try {
      return listen(port);
    } catch (const Error&) {
      if (attempt == kAttempts || !is_taken(port)) throw;
    }
  }
}

}  // namespace shunt::ucx
