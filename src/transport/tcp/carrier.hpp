// Packets over TCP, on as many rails as the machines have network interfaces.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/far/carrier.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::tcp {

struct Options {
  /// Interfaces, comma-separated, each of them a rail; empty: one rail, by the system's routes.
  std::string interfaces;
  /// "first-last" to listen at; empty: any.
  std::string port_range;
  /// Size of a rail's send buffer in the system; 0: the system decides.
  std::int32_t send_buffer_bytes = 0;
};

/// Where the peer's rails listen. An empty address in the contact's list stands for the address that it is known as.
/// Throws Error(mismatch).
std::vector<net::Endpoint> endpoints_of(const far::Contact& contact);

/// Each pair of ranks has one connection for messages, which slices can't delay, and one per rail for slices. A rail
/// takes the next slice when it has room, so a slow one gets fewer. Listens from this call on, until all peers are
/// connected. Throws as net::open_listener.
std::unique_ptr<far::Carrier> make_carrier(const Options& options);

}  // namespace shunt::tcp
