// Packets over TCP, on as many rails as the machines have network interfaces.
#pragma once

#include <memory>
#include <vector>

#include "shunt/environment.hpp"
#include "transport/far/carrier.hpp"
#include "transport/net/sockets.hpp"

namespace shunt::tcp {

/// Where the peer's rails listen. An empty address in the contact's list stands for the address that it is known as.
/// Throws Error(mismatch).
std::vector<net::Endpoint> endpoints_of(const far::Contact& contact);

/// Uses `devices`, of which each is a rail, `port_range` and `send_buffer_bytes`; without devices, one rail by the
/// system's routes. Each pair of ranks has one connection for messages, which slices can't delay, and one per rail for
/// slices. A rail takes the next slice when it has room, so a slow one gets fewer. Listens from this call on, until all
/// peers are connected. Throws as net::open_listener.
std::unique_ptr<far::Carrier> make_carrier(const Environment::Network& options);

}  // namespace shunt::tcp
