// The choice of a network and its carrier.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "shunt/environment.hpp"
#include "transport/far/carrier.hpp"

namespace shunt::far {

enum class Network : std::uint8_t { tcp, ucx };
const char* name_of(Network network);

/// The devices with an active RDMA port, comma-separated, as UCX names them; `devices` may be named as UCX does or as
/// interfaces, and an empty list means all. `classes` is where the system lists devices.
std::string rdma_devices(const std::string& devices, const std::filesystem::path& classes = "/sys/class");

/// The one that `kind` names; with none, UCX where these devices speak RDMA, TCP elsewhere. Throws
/// Error(invalid_argument) for an unknown name.
Network choose_network(const Environment::Network& options);

/// Throws Error(unsupported) for UCX where it was not built in, and what its carrier throws.
std::unique_ptr<Carrier> make_carrier(Network network, const Environment::Network& options);

}  // namespace shunt::far
