#include "bench/selftest/facts.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/selftest/processes.hpp"
#include "core/comma_list.hpp"
#include "engine/device_library.hpp"

namespace shunt::bench::selftest {
namespace {

namespace fs = std::filesystem;

/// The first line; empty if there is none or the file can't be read.
std::string line_of(const fs::path& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

/// Names in a folder, sorted; empty if there is no such folder.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

constexpr double kKib = 1024;

/// The value of the first line "key: value"; empty if there is none.
std::string value_of(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto end = line.find_last_not_of(" \t", colon - 1);
    if (end == std::string::npos || line.compare(0, end + 1, key) != 0) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

double kilobytes_in(const std::string& text) {
  double value = 0;
  std::istringstream(text) >> value;
  return value * kKib;
}

/// The soft limit, the first number of a line such as "Max open files   1024   4096   files".
std::optional<double> limit_of(const fs::path& root, const std::string& name) {
  std::ifstream lines(root / "proc/self/limits");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    std::string soft;
    words >> soft;
    if (soft == "unlimited") return std::numeric_limits<double>::infinity();
    double value = 0;
    if (std::istringstream(soft) >> value) return value;
  }
  return std::nullopt;
}

std::vector<NumaNode> numa_nodes_of(const fs::path& root) {
  std::vector<NumaNode> nodes;
  const fs::path folder = root / "sys/devices/system/node";
  for (const std::string& name : names_in(folder)) {
    const auto index = name.starts_with("node") ? number_in(name.substr(4)) : std::nullopt;
    if (!index) continue;
    const std::string memory = value_of(folder / name / "meminfo", "Node " + std::to_string(*index) + " MemTotal");
    nodes.push_back({*index, line_of(folder / name / "cpulist"), kilobytes_in(memory)});
  }
  std::ranges::sort(nodes, {}, &NumaNode::index);
  return nodes;
}

SharedMemory shared_memory_of(const fs::path& root) {
  const std::string folder = root / "dev/shm";
  SharedMemory shared;
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return shared;
  const auto block = static_cast<double>(status.f_frsize);
  shared.exists = true;
  shared.is_writable = access(folder.c_str(), W_OK | X_OK) == 0 && (status.f_flag & ST_RDONLY) == 0;
  shared.bytes = static_cast<double>(status.f_blocks) * block;
  shared.free_bytes = static_cast<double>(status.f_bavail) * block;
  return shared;
}

constexpr std::chrono::seconds kFindLimit{60};  // the first use of a GPU initializes its driver
constexpr const char* kNvidia = "0x10de";
constexpr const char* kDisplayClass = "0x03";  // VGA and 3D controllers

bool is_pci_address(const std::string& name) {
  return name.size() >= 12 && name[4] == ':' && name[7] == ':' && name[10] == '.';
}

/// device: a folder of /sys, or a symbolic link to one.
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
  if (node && *node >= 0) place.numa_node = node;  // -1: unknown
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

DeviceFacts device_facts_in(const nlohmann::json& list) {
  DeviceFacts facts;
  list.at(0).get_to(facts.name);
  list.at(1).get_to(facts.pci_address);
  list.at(2).get_to(facts.memory_bytes);
  list.at(3).get_to(facts.compute_major);
  list.at(4).get_to(facts.compute_minor);
  list.at(5).get_to(facts.num_sms);
  list.at(6).get_to(facts.compute_mode);
  list.at(7).get_to(facts.is_mig);
  list.at(8).get_to(facts.peers);
  list.at(9).get_to(facts.driver_version);
  list.at(10).get_to(facts.runtime_version);
  return facts;
}

}  // namespace

std::optional<int> number_in(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

int count_of_list(const std::string& list) {
  int count = 0;
  for (const std::string& item : items_of(list)) {
    const auto dash = item.find('-');
    const auto first = number_in(item), last = dash == std::string::npos ? first : number_in(item.substr(dash + 1));
    if (!first || !last || *last < *first) return 0;
    count += *last - *first + 1;
  }
  return count;
}

MachineFacts read_machine_facts(const fs::path& root) {
  MachineFacts facts;
  facts.cpu = value_of(root / "proc/cpuinfo", "model name");
  facts.cpus = count_of_list(line_of(root / "sys/devices/system/cpu/online"));
  facts.allowed_list = value_of(root / "proc/self/status", "Cpus_allowed_list");
  facts.allowed_cpus = count_of_list(facts.allowed_list);
  facts.numa_nodes = numa_nodes_of(root);
  facts.memory_bytes = kilobytes_in(value_of(root / "proc/meminfo", "MemTotal"));
  facts.available_bytes = kilobytes_in(value_of(root / "proc/meminfo", "MemAvailable"));
  facts.group = read_group_limits(root);
  facts.limits = {.locked_memory_bytes = limit_of(root, "Max locked memory"),
                  .open_files = limit_of(root, "Max open files"),
                  .processes = limit_of(root, "Max processes"),
                  .address_space_bytes = limit_of(root, "Max address space")};
  facts.shared_memory = shared_memory_of(root);
  return facts;
}

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
  if (common > 1) return Nearness::same_switch;  // the first common part is the root, the second a bridge
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
  found.why_not = run_in_child(
      [](const SendLine& send_line) {
        for (const DeviceFacts& device : require_device_library().describe_devices())
          send_line(to_json(device).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
      },
      [&](const std::string& line) {
        const auto parsed = nlohmann::json::parse(line, nullptr, false);
        if (parsed.is_array()) found.devices.push_back(device_facts_in(parsed));
      },
      std::chrono::steady_clock::now() + kFindLimit);
  return found;
}

}  // namespace shunt::bench::selftest
