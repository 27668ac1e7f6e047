#include "bench/selftest/warnings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shunt::bench::selftest {
namespace {

constexpr double kMib = 1 << 20, kGib = 1 << 30;
// NCCL and MPI together use this much with a few ranks.
constexpr double kLeastSharedMemory = 512 * kMib;
// A rank with room for a few thousand tokens registers this much.
constexpr double kLeastLockedMemory = kGib;
constexpr double kLeastOpenFiles = 1024;
// One rank needs this much for a layer of a large model.
constexpr double kLeastMemory = 2 * kGib;

class Warnings {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    all_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() { return std::move(all_); }

 private:
  std::vector<std::string> all_;
};

bool is_less(const std::optional<double>& limit, double least) { return limit && *limit < least; }

void warn_of_cores(Warnings& warnings, const MachineFacts& machine, const RunSetup& setup) {
  if (machine.allowed_cpus > 0 && machine.allowed_cpus < setup.ranks)
    warnings.add(
        "this process may use {} CPUs, fewer than the {} ranks of the checks: ranks share cores, so measure with "
        "fewer ranks, or widen the affinity mask (taskset, --cpuset-cpus, Slurm's --cpus-per-task)",
        machine.allowed_cpus, setup.ranks);
  if (std::isfinite(machine.group.cpus) && machine.group.cpus < machine.allowed_cpus)
    warnings.add(
        "the control group gives {:.1f} CPUs of time on {} CPUs: ranks are stopped when it is used up and appear "
        "slow; raise the limit (docker run --cpus), or use fewer ranks than that",
        machine.group.cpus, machine.allowed_cpus);
}

void warn_of_memory(Warnings& warnings, const MachineFacts& machine) {
  if (machine.group.memory_room_bytes < kLeastMemory)
    warnings.add(
        "the control group leaves {:.1f} GiB of memory, and a process that exceeds it is killed; raise the limit "
        "(docker run --memory)",
        machine.group.memory_room_bytes / kGib);
  else if (machine.available_bytes > 0 && machine.available_bytes < kLeastMemory)
    warnings.add("only {:.1f} GiB of memory are available; end other processes that use it",
                 machine.available_bytes / kGib);
  const SharedMemory& shared = machine.shared_memory;
  constexpr const char* kWhoNeedsIt = "shunt's own memory needs no file system, but NCCL and MPI do";
  if (!shared.exists)
    warnings.add("there is no /dev/shm; {}: mount a tmpfs there", kWhoNeedsIt);
  else if (!shared.is_writable)
    warnings.add("/dev/shm can't be written; {}: mount it writable", kWhoNeedsIt);
  else if (shared.free_bytes < kLeastSharedMemory)
    warnings.add("/dev/shm has {:.0f} MiB free; {}: make it larger (docker run --shm-size=1g, or --ipc=host)",
                 shared.free_bytes / kMib, kWhoNeedsIt);
}

void warn_of_limits(Warnings& warnings, const MachineFacts& machine, const BusFacts& bus) {
  const bool has_rdma = std::ranges::any_of(bus.rdma, &RdmaDevice::is_active);
  const ProcessLimits& limits = machine.limits;
  if (has_rdma && is_less(limits.locked_memory_bytes, kLeastLockedMemory))
    warnings.add(
        "{:.1f} MiB of memory may be locked, but RDMA locks all memory that it sends from or receives into: set "
        "`ulimit -l "
        "unlimited` (docker run --ulimit memlock=-1)",
        *limits.locked_memory_bytes / kMib);
  if (is_less(limits.open_files, kLeastOpenFiles))
    warnings.add(
        "{:.0f} files may be open, and a rank holds two for every other rank of its machine: raise `ulimit -n`",
        *limits.open_files);
  if (is_less(limits.address_space_bytes, 64 * kGib))
    warnings.add(
        "the address space is limited to {:.1f} GiB, of which ranks may reserve half for their segments: set "
        "`ulimit -v unlimited`",
        *limits.address_space_bytes / kGib);
}

void warn_of_networks(Warnings& warnings, const BusFacts& bus, const RunSetup& setup) {
  const auto is_up = [](const NetworkInterface& interface) { return interface.state != "down"; };
  const auto loopback = std::ranges::find_if(bus.interfaces, &NetworkInterface::is_loopback);
  if (loopback == bus.interfaces.end() || !is_up(*loopback))
    warnings.add(
        "no loopback interface is up, so nodes can't be joined on one machine: set it "
        "up (ip link set lo up)");
  if (std::ranges::any_of(bus.rdma, &RdmaDevice::is_active) && !setup.has_ucx)
    warnings.add(
        "RDMA devices exist, but shunt's library for UCX does not load, so rows would use TCP: install "
        "UCX, or build shunt with it");
  for (const RdmaDevice& device : bus.rdma)
    if (!device.is_active)
      warnings.add("RDMA device {} has no active port: check its cable and its driver", device.name);
}

void warn_of_gpus(Warnings& warnings, const BusFacts& bus, const RunSetup& setup) {
  const auto count = static_cast<int>(bus.gpus.size());
  if (count < std::max(bus.gpus_on_bus, bus.gpu_files))
    warnings.add(
        "{} GPUs are on the bus, {} have a device file here, and CUDA finds {} in this process: check the driver, "
        "CUDA_VISIBLE_DEVICES, and the devices of the container (docker run --gpus)",
        bus.gpus_on_bus, bus.gpu_files, count);
  if (count == 0) return;
  std::string apart;
  for (int a = 0; a < count; ++a)
    for (int b = a + 1; b < count; ++b) {
      const auto& peers = bus.gpus[static_cast<std::size_t>(a)].facts.peers;
      if (std::ranges::find(peers, b) == peers.end()) apart += fmt::format("{}{}-{}", apart.empty() ? "" : ", ", a, b);
    }
  if (!apart.empty())
    warnings.add(
        "GPUs {} can't reach each other's memory, so they can't be one node: declare them as nodes (SHUNT_TOPOLOGY), "
        "or find the cause (PCI ACS, a virtual machine, MIG)",
        apart);
  for (int i = 0; i < count; ++i) {
    const DeviceFacts& facts = bus.gpus[static_cast<std::size_t>(i)].facts;
    if (facts.compute_mode != "default")
      warnings.add("GPU {} is in compute mode {}, in which processes can't share it: nvidia-smi -i {} -c DEFAULT", i,
                   facts.compute_mode, i);
    if (facts.driver_version < facts.runtime_version)
      warnings.add("GPU {}: the driver supports CUDA {}.{}, older than the {}.{} that shunt was built with: update it",
                   i, facts.driver_version / 1000, facts.driver_version % 1000 / 10, facts.runtime_version / 1000,
                   facts.runtime_version % 1000 / 10);
    if (bus.gpus[static_cast<std::size_t>(i)].nearness == Nearness::other_numa_node)
      warnings.add("GPU {}'s nearest network device, {}, is on another NUMA node: its traffic crosses sockets", i,
                   bus.gpus[static_cast<std::size_t>(i)].nearest_nic);
  }
  if (setup.device_connections < setup.ranks)
    warnings.add(
        "CUDA_DEVICE_MAX_CONNECTIONS is {}, and ranks of a process that share a GPU need one each: set it to {} or "
        "more",
        setup.device_connections, setup.ranks);
}

}  // namespace

std::vector<std::string> warnings_of(const MachineFacts& machine, const BusFacts& bus, const RunSetup& setup) {
  Warnings warnings;
  warn_of_cores(warnings, machine, setup);
  warn_of_memory(warnings, machine);
  warn_of_limits(warnings, machine, bus);
  warn_of_networks(warnings, bus, setup);
  warn_of_gpus(warnings, bus, setup);
  return warnings.take();
}

}  // namespace shunt::bench::selftest
