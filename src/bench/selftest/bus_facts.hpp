// Where GPUs and network devices are on the machine's buses, and which are near each other.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/device_library.hpp"

namespace shunt::bench::selftest {

/// Where a device is plugged in.
struct BusPlace {
  std::string pci_address = {};        ///< "0000:1b:00.0"; empty: it is no device of a PCI bus
  std::vector<std::string> path = {};  ///< from the root of the bus: "pci0000:17", "0000:17:01.0", …
  std::optional<int> numa_node = std::nullopt;
};

struct NetworkInterface {
  std::string name = {};
  std::string state = {};  ///< "up", "down", "unknown"
  bool is_loopback = false;
  int speed_mbps = 0;  ///< 0: unknown
  BusPlace place = {};
};

struct RdmaDevice {
  std::string name = {};
  bool is_active = false;
  std::string rate = {};        ///< of its first active port: "400 Gb/sec (4X NDR)"
  std::string link_layer = {};  ///< "InfiniBand" or "Ethernet"
  BusPlace place = {};
};

/// From far to near.
enum class Nearness : std::uint8_t { unknown, other_numa_node, same_numa_node, same_root, same_switch };

std::string_view to_string(Nearness nearness);
Nearness nearness_of(const BusPlace& a, const BusPlace& b);

struct Gpu {
  DeviceFacts facts = {};
  BusPlace place = {};
  std::string nearest_nic = {};  ///< an RDMA device or, without any, an interface; empty: none on a bus
  Nearness nearness = Nearness::unknown;
};

struct BusFacts {
  std::vector<NetworkInterface> interfaces = {};
  std::vector<RdmaDevice> rdma = {};
  std::vector<Gpu> gpus = {};  ///< by their index in this process
  std::string why_no_gpus = {};
  /// NVIDIA GPUs that the bus shows, and those whose device files this process sees: more than `gpus`, where the driver
  /// or a container withholds some.
  int gpus_on_bus = 0;
  int gpu_files = 0;

  /// Whether there is a GPU here that shunt should be able to use.
  [[nodiscard]] bool has_gpu() const { return !gpus.empty() || gpu_files > 0; }
};

/// gpus: what CUDA says of them. root: of /sys and /dev.
BusFacts read_bus_facts(const std::vector<DeviceFacts>& gpus, const std::filesystem::path& root = "/");

struct FoundDevices {
  std::vector<DeviceFacts> devices = {};
  std::string why_not = {};
};

/// What CUDA says of this machine's devices; asked in a child, as a process that has used CUDA can't fork ranks that
/// do.
FoundDevices find_devices();

}  // namespace shunt::bench::selftest
