#include "bench/selftest/bus_facts.hpp"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "bench/selftest/apart.hpp"
#include "bench/selftest/system_files.hpp"
#include "engine/device_library.hpp"

namespace shunt::bench::selftest {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kMostTimeToFind{60};  // the first process that uses a GPU wakes its driver
constexpr const char* kNvidia = "0x10de";
constexpr const char* kDisplayClass = "0x03";  // VGA and 3D controllers

bool is_pci_address(const std::string& name) {
  return name.size() >= 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

/// device: a folder of /sys, or a link to one.
BusPlace place_of(const fs::path& device) {
  BusPlace place;
  std::error_code none;
  const fs::path path = fs::canonical(device, none);
  if (none) return place;
  for (const fs::path& part : path) {
    const std::string name = part;
    if (name.starts_with("pci") && name.find(':') != std::string::npos) place.path.push_back(name);
    if (!is_pci_address(name)) continue;
    place.path.push_back(name);
    place.pci_address = name;
  }
  if (place.pci_address.empty()) return place;
  const auto node = number_in(line_of(path / "numa_node"));
  if (node && *node >= 0) place.numa_node = node;  // -1: the machine does not say
  return place;
}

std::vector<NetworkInterface> interfaces_of(const fs::path& root) {
  constexpr int kLoopback = 772;  // ARPHRD_LOOPBACK
  std::vector<NetworkInterface> all;
  const fs::path folder = root / "sys/class/net";
  for (const std::string& name : names_in(folder)) {
    if (!fs::is_directory(folder / name)) continue;  // such as bonding_masters
    NetworkInterface interface { .name = name, .state = line_of(folder / name / "operstate") };
    interface.is_loopback = number_in(line_of(folder / name / "type")) == kLoopback;
    interface.speed_mbps = std::max(0, number_in(line_of(folder / name / "speed")).value_or(0));
    interface.place = place_of(folder / name / "device");
    all.push_back(std::move(interface));
  }
  return all;
}

std::vector<RdmaDevice> rdma_of(const fs::path& root) {
  std::vector<RdmaDevice> all;
  const fs::path folder = root / "sys/class/infiniband";
  for (const std::string& name : names_in(folder)) {
    RdmaDevice device{.name = name, .place = place_of(folder / name / "device")};
    for (const std::string& port : names_in(folder / name / "ports")) {
      const fs::path files = folder / name / "ports" / port;
      if (device.is_active || !line_of(files / "state").ends_with("ACTIVE")) continue;
      device.is_active = true;
      device.rate = line_of(files / "rate");
      device.link_layer = line_of(files / "link_layer");
    }
    all.push_back(std::move(device));
  }
  return all;
}

int count_gpus_on_bus(const fs::path& root) {
  const fs::path folder = root / "sys/bus/pci/devices";
  return static_cast<int>(std::ranges::count_if(names_in(folder), [&](const std::string& name) {
    return line_of(folder / name / "vendor") == kNvidia && line_of(folder / name / "class").starts_with(kDisplayClass);
  }));
}

int count_gpu_files(const fs::path& root) {
  return static_cast<int>(std::ranges::count_if(names_in(root / "dev"), [](const std::string& name) {
    constexpr std::string_view kPrefix = "nvidia";
    return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
           std::ranges::all_of(name.substr(kPrefix.size()), [](unsigned char c) { return std::isdigit(c) != 0; });
  }));
}

void find_nearest_nic(Gpu& gpu, const BusFacts& facts) {
  const auto consider = [&](const std::string& name, const BusPlace& place) {
    const Nearness nearness = nearness_of(gpu.place, place);
    if (!gpu.nearest_nic.empty() && nearness <= gpu.nearness) return;
    gpu.nearest_nic = name;
    gpu.nearness = nearness;
  };
  for (const RdmaDevice& device : facts.rdma)
    if (device.is_active) consider(device.name, device.place);
  if (!gpu.nearest_nic.empty()) return;
  for (const NetworkInterface& interface : facts.interfaces)
    if (!interface.place.pci_address.empty()) consider(interface.name, interface.place);
}

nlohmann::json to_json(const DeviceFacts& facts) {
  return {facts.name,          facts.pci_address,    facts.memory_bytes,   facts.compute_major,
          facts.compute_minor, facts.num_sms,        facts.compute_mode,   facts.is_mig,
          facts.peers,         facts.driver_version, facts.runtime_version};
}

DeviceFacts device_facts_in(const nlohmann::json& said) {
  DeviceFacts facts;
  said.at(0).get_to(facts.name);
  said.at(1).get_to(facts.pci_address);
  said.at(2).get_to(facts.memory_bytes);
  said.at(3).get_to(facts.compute_major);
  said.at(4).get_to(facts.compute_minor);
  said.at(5).get_to(facts.num_sms);
  said.at(6).get_to(facts.compute_mode);
  said.at(7).get_to(facts.is_mig);
  said.at(8).get_to(facts.peers);
  said.at(9).get_to(facts.driver_version);
  said.at(10).get_to(facts.runtime_version);
  return facts;
}

}  // namespace

std::string_view to_string(Nearness nearness) {
  switch (nearness) {
    case Nearness::unknown: return "unknown distance";
    case Nearness::other_numa_node: return "other NUMA node";
    case Nearness::same_numa_node: return "same NUMA node";
    case Nearness::same_root: return "same PCI root";
    case Nearness::same_switch: return "same PCI switch";
  }
  return "unknown distance";
}

Nearness nearness_of(const BusPlace& a, const BusPlace& b) {
  if (a.pci_address.empty() || b.pci_address.empty()) return Nearness::unknown;
  const auto [end, ignored] = std::ranges::mismatch(a.path, b.path);
  const auto common = end - a.path.begin();
  if (common > 1) return Nearness::same_switch;  // the first is the root, the next a bridge
  if (common == 1) return Nearness::same_root;
  if (!a.numa_node || !b.numa_node) return Nearness::unknown;
  return a.numa_node == b.numa_node ? Nearness::same_numa_node : Nearness::other_numa_node;
}

BusFacts read_bus_facts(const std::vector<DeviceFacts>& gpus, const fs::path& root) {
  BusFacts facts{.interfaces = interfaces_of(root), .rdma = rdma_of(root)};
  facts.gpus_on_bus = count_gpus_on_bus(root);
  facts.gpu_files = count_gpu_files(root);
  for (const DeviceFacts& device : gpus) {
    Gpu gpu{.facts = device, .place = place_of(root / "sys/bus/pci/devices" / device.pci_address)};
    find_nearest_nic(gpu, facts);
    facts.gpus.push_back(std::move(gpu));
  }
  return facts;
}

FoundDevices find_devices() {
  FoundDevices found;
  found.why_not = run_apart(
      [](const Say& say) {
        for (const DeviceFacts& device : require_device_library().describe_devices())
          say(to_json(device).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      },
      [&](const std::string& line) {
        const auto said = nlohmann::json::parse(line, nullptr, false);
        if (said.is_array()) found.devices.push_back(device_facts_in(said));
      },
      std::chrono::steady_clock::now() + kMostTimeToFind);
  return found;
}

}  // namespace shunt::bench::selftest
