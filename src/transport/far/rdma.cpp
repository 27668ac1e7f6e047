#include "transport/far/rdma.hpp"

#include <fstream>
#include <vector>

#include "core/comma_list.hpp"

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

}  // namespace shunt::far
