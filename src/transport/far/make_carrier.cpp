#include "transport/far/make_carrier.hpp"

#include <filesystem>
#include <sstream>

#include "core/fail.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::far {
namespace {

/// Among these devices, or among all of this host.
bool has_rdma(const std::string& devices) {
  namespace fs = std::filesystem;
  const fs::path all = "/sys/class/infiniband";
  std::error_code none;
  if (devices.empty()) return fs::exists(all, none) && !fs::is_empty(all, none);
  std::istringstream names(devices);
  for (std::string name; std::getline(names, name, ',');)
    if (fs::exists(all / name.substr(0, name.find(':')), none)) return true;
  return false;
}

}  // namespace

const char* name_of(Network network) { return network == Network::tcp ? "tcp" : "ucx"; }

Network choose_network(const CarrierOptions& options) {
  if (options.network.empty()) return ucx::is_built_in() && has_rdma(options.devices) ? Network::ucx : Network::tcp;
  for (const Network network : {Network::tcp, Network::ucx})
    if (options.network == name_of(network)) return network;
  fail(ErrorCode::invalid_argument, "SHUNT_NETWORK='{}': expected tcp or ucx", options.network);
}

std::unique_ptr<Carrier> make_carrier(Network network, const CarrierOptions& options) {
  if (network == Network::tcp)
    return std::make_unique<tcp::Carrier>(tcp::Options{options.devices, options.port_range, options.send_buffer_bytes});
  return ucx::make_carrier({options.devices, options.port_range});
}

}  // namespace shunt::far
