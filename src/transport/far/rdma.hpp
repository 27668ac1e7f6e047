// Which devices of this host speak RDMA.
#pragma once

#include <filesystem>
#include <string>

namespace shunt::far {

/// Of the devices, which may be named as UCX does or as interfaces of the system, those with an active RDMA port, as
/// UCX names them, comma-separated; of an empty list all of this host. `classes` is where the system lists devices.
std::string rdma_devices(const std::string& devices, const std::filesystem::path& classes = "/sys/class");

}  // namespace shunt::far
