// Facts about this machine, or the container that this process runs in, from /proc, /sys, /dev and CUDA.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/control_groups.hpp"
#include "engine/device_library.hpp"

namespace shunt::bench::selftest {

struct NumaNode {
  int index = 0;
  std::string cpus = {};  ///< in the format of /sys: "0-15,32-47"
  double memory_bytes = 0;
};

/// Soft limits of this process. Infinity: no limit; nullopt: unknown.
struct ProcessLimits {
  std::optional<double> locked_memory_bytes = std::nullopt;
  std::optional<double> open_files = std::nullopt;
  std::optional<double> processes = std::nullopt;
  std::optional<double> address_space_bytes = std::nullopt;
};

/// The file system for shared memory, /dev/shm.
struct SharedMemory {
  bool exists = false;
  bool is_writable = false;
  double bytes = 0;
  double free_bytes = 0;
};

struct MachineFacts {
  std::string cpu = {};  ///< model; empty if unknown
  int cpus = 0;          ///< online CPUs of the machine
  int allowed_cpus = 0;  ///< CPUs that this process may use
  std::string allowed_list = {};
  std::vector<NumaNode> numa_nodes = {};
  double memory_bytes = 0;
  double available_bytes = 0;
  GroupLimits group = {};
  ProcessLimits limits = {};
  SharedMemory shared_memory = {};
};

/// root: parent folder of /proc, /sys and /dev.
MachineFacts read_machine_facts(const std::filesystem::path& root = "/");

/// Number of elements in a list such as "0-3,8"; 0 for other texts.
int count_of_list(const std::string& list);

// Devices on the machine's buses.

/// Position of a device on the PCI bus.
struct BusPlace {
  std::string pci_address = {};        ///< "0000:1b:00.0"; empty: not a PCI device
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
  std::string rate = {};        ///< of the first active port: "400 Gb/sec (4X NDR)"
  std::string link_layer = {};  ///< "InfiniBand" or "Ethernet"
  BusPlace place = {};
};

/// Distance of two devices, from far to near.
enum class Nearness : std::uint8_t { unknown, other_numa_node, same_numa_node, same_root, same_switch };

std::string_view to_string(Nearness nearness);
Nearness nearness_of(const BusPlace& a, const BusPlace& b);

struct Gpu {
  DeviceFacts facts = {};
  BusPlace place = {};
  std::string nearest_nic = {};  ///< an RDMA device or, if there is none, an interface; empty: no PCI device
  Nearness nearness = Nearness::unknown;
};

struct BusFacts {
  std::vector<NetworkInterface> interfaces = {};
  std::vector<RdmaDevice> rdma = {};
  std::vector<Gpu> gpus = {};  ///< in the order of CUDA's indices
  std::string why_no_gpus = {};
  /// NVIDIA GPUs on the bus, and GPU device files visible to this process. Both exceed gpus.size() if the driver or a
  /// container hides some.
  int gpus_on_bus = 0;
  int gpu_files = 0;

  /// True if there is a GPU that shunt should be able to use.
  [[nodiscard]] bool has_gpu() const { return !gpus.empty() || gpu_files > 0; }
};

/// gpus: CUDA's description of the GPUs. root: parent folder of /sys and /dev.
BusFacts read_bus_facts(const std::vector<DeviceFacts>& gpus, const std::filesystem::path& root = "/");

struct FoundDevices {
  std::vector<DeviceFacts> devices = {};
  std::string why_not = {};
};

/// CUDA's description of this machine's devices, queried in a child, because a process that has used CUDA can't fork
/// ranks that use it.
FoundDevices find_devices();

/// The number that the text begins with, if there is one.
std::optional<int> number_in(const std::string& text);

}  // namespace shunt::bench::selftest
