// TCP ports of this host.
#pragma once

#include <cstdint>
#include <string>

#include "transport/descriptor.hpp"

namespace shunt::net {

/// Where the socket is bound; 0 for one that is not, or that has no ports.
std::uint16_t port_of(int socket);

/// A socket at a port that nobody uses, in a range "first-last" or, if that is empty, anywhere. As long as it is open
/// the system gives the port to nobody, but a listener that reuses addresses can have it. Throws
/// Error(invalid_argument) for what is no range, Error(system) where all of it is in use.
Descriptor reserve_port(const std::string& range);

}  // namespace shunt::net
