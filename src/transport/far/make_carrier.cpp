#include "transport/far/make_carrier.hpp"

#include <fstream>
#include <vector>

#include "core/comma_list.hpp"
#include "core/fail.hpp"
#include "core/log.hpp"
#include "transport/tcp/carrier.hpp"
#include "transport/ucx/make_carrier.hpp"

namespace shunt::far {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> entries_of(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename());
  return names;
}

bool is_active(const fs::path& port) {
  std::string state;  // such as "4: ACTIVE"
  std::getline(std::ifstream(port / "state"), state);
  return state.ends_with("ACTIVE");
}

/// "device:port" of each active port.
std::vector<std::string> active_ports(const fs::path& classes, const std::string& device) {
  std::vector<std::string> ports;
  const fs::path folder = classes / "infiniband" / device / "ports";
  for (const std::string& port : entries_of(folder))
    if (is_active(folder / port)) ports.push_back(device + ":" + port);
  return ports;
}

std::vector<std::string> ports_of(const fs::path& classes, const std::string& name) {
  const std::string device = name.substr(0, name.find(':'));
  std::error_code none;
  if (fs::exists(classes / "infiniband" / device, none))
    return device != name ? std::vector{name} : active_ports(classes, device);
  std::vector<std::string> ports;
  for (const std::string& behind : entries_of(classes / "net" / name / "device" / "infiniband"))
    for (std::string& port : active_ports(classes, behind)) ports.push_back(std::move(port));
  return ports;
}

}  // namespace

std::string rdma_devices(const std::string& devices, const fs::path& classes) {
  std::vector<std::string> names = items_of(devices);
  if (names.empty()) names = entries_of(classes / "infiniband");
  std::string found;
  for (const std::string& name : names)
    for (const std::string& port : ports_of(classes, name)) found += (found.empty() ? "" : ",") + port;
  return found;
}

const char* name_of(Network network) { return network == Network::tcp ? "tcp" : "ucx"; }

Network choose_network(const Environment::Network& options) {
  if (options.kind.empty()) {
    if (rdma_devices(options.devices).empty()) return Network::tcp;
    if (load_backend("ucx").functions) return Network::ucx;
    log("this machine has RDMA, but rows go over TCP: {}", load_backend("ucx").why_not);
    return Network::tcp;
  }
  for (const Network network : {Network::tcp, Network::ucx})
    if (options.kind == name_of(network)) return network;
  fail(ErrorCode::invalid_argument, "SHUNT_NETWORK='{}': expected tcp or ucx", options.kind);
}

std::unique_ptr<Carrier> make_carrier(Network network, const Environment::Network& options) {
  if (network == Network::tcp) return tcp::make_carrier(options);
  Environment::Network chosen = options;
  if (const std::string devices = rdma_devices(options.devices); !devices.empty()) chosen.devices = devices;
  return require_backend<ucx::Functions>("ucx").make_carrier(chosen);
}

}  // namespace shunt::far
