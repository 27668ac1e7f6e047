#include "cli/selftest_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/output.hpp"

namespace shunt::cli {
namespace {

using namespace bench::selftest;
using nlohmann::ordered_json;

/// "4.0 GiB".
std::string size_text(double bytes) {
  if (std::isinf(bytes)) return "no limit";
  constexpr double kStep = 1024;
  int unit = 0;
  for (constexpr int kLast = 4; bytes >= kStep && unit < kLast; ++unit) bytes /= kStep;
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  return fmt::format("{:.{}f} {}", bytes, unit > 2 ? 1 : 0, kUnits[unit]);
}

std::string size_text(const std::optional<double>& bytes) { return bytes ? size_text(*bytes) : "unknown"; }

std::string count_text(const std::optional<double>& count) {
  if (!count) return "unknown";
  return std::isinf(*count) ? "no limit" : fmt::format("{:.0f}", *count);
}

std::string place_text(const BusPlace& place) {
  if (place.pci_address.empty()) return "";
  return fmt::format(", PCI {}, NUMA node {}", place.pci_address,
                     place.numa_node ? std::to_string(*place.numa_node) : "unknown");
}

void print_gpus(const std::vector<Gpu>& gpus) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const DeviceFacts& facts = gpus[i].facts;
    fmt::print("  gpu {:<4}{}{}, {}, {} SMs, compute {}.{}, mode {}{}, CUDA {}.{}\n", i, facts.name,
               place_text(gpus[i].place), size_text(static_cast<double>(facts.memory_bytes)), facts.num_sms,
               facts.compute_major, facts.compute_minor, facts.compute_mode, facts.is_mig ? ", MIG" : "",
               facts.driver_version / 1000, facts.driver_version % 1000 / 10);
    fmt::print("          nearest network device: {}\n",
               gpus[i].nearest_nic.empty() ? "none on a bus"
                                           : fmt::format("{} ({})", gpus[i].nearest_nic, to_string(gpus[i].nearness)));
  }
}

bool reaches(const Gpu& gpu, std::size_t other) {
  return std::ranges::find(gpu.facts.peers, static_cast<int>(other)) != gpu.facts.peers.end();
}

void print_peers(const std::vector<Gpu>& gpus) {
  fmt::print("  peers   (can the GPU of the row access the memory of the GPU of the column?)\n          ");
  for (std::size_t column = 0; column < gpus.size(); ++column) fmt::print("{:>5}", column);
  for (std::size_t row = 0; row < gpus.size(); ++row) {
    fmt::print("\n      {:>4}", row);
    for (std::size_t column = 0; column < gpus.size(); ++column)
      fmt::print("{:>5}", row == column ? "self" : reaches(gpus[row], column) ? "yes" : "no");
  }
  fmt::print("\n");
}

ordered_json number_or_null(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? ordered_json(*number) : ordered_json();
}

/// Null if there is no limit.
ordered_json limit_json(double limit) { return number_or_null(limit); }

ordered_json place_json(const BusPlace& place) {
  return {{"pci_address", place.pci_address.empty() ? ordered_json() : ordered_json(place.pci_address)},
          {"numa_node", place.numa_node ? ordered_json(*place.numa_node) : ordered_json()}};
}

ordered_json gpu_json(const Gpu& gpu, std::size_t index) {
  const DeviceFacts& facts = gpu.facts;
  ordered_json report = {{"index", index}, {"name", facts.name}};
  report.update(place_json(gpu.place));
  if (gpu.place.pci_address.empty()) report["pci_address"] = facts.pci_address;
  report.update({{"memory_bytes", facts.memory_bytes},
                 {"num_sms", facts.num_sms},
                 {"compute_capability", fmt::format("{}.{}", facts.compute_major, facts.compute_minor)},
                 {"compute_mode", facts.compute_mode},
                 {"is_mig", facts.is_mig},
                 {"driver_version", facts.driver_version},
                 {"runtime_version", facts.runtime_version},
                 {"peers", facts.peers},
                 {"nearest_nic", gpu.nearest_nic.empty() ? ordered_json() : ordered_json(gpu.nearest_nic)},
                 {"nearness", to_string(gpu.nearness)}});
  return report;
}

}  // namespace

void print_machine(const MachineFacts& machine) {
  fmt::print("\nthis machine\n  cpu     {}\n", machine.cpu.empty() ? "unknown" : machine.cpu);
  fmt::print("  cpus    {} of {} ({}), {}\n", machine.allowed_cpus, machine.cpus, machine.allowed_list,
             plural(static_cast<std::int64_t>(machine.numa_nodes.size()), "NUMA node"));
  if (machine.numa_nodes.size() > 1)
    for (const NumaNode& node : machine.numa_nodes)
      fmt::print("          NUMA node {}: CPUs {}, {}\n", node.index, node.cpus, size_text(node.memory_bytes));
  fmt::print("  memory  {}, {} available\n", size_text(machine.memory_bytes), size_text(machine.available_bytes));
  fmt::print("  group   memory: {}{}; CPU time: {}\n", size_text(machine.group.memory_bytes),
             std::isinf(machine.group.memory_bytes) ? "" : ", " + size_text(machine.group.memory_room_bytes) + " left",
             std::isinf(machine.group.cpus) ? "no limit" : fmt::format("{:.1f} CPUs", machine.group.cpus));
  const SharedMemory& shared = machine.shared_memory;
  fmt::print("  shm     /dev/shm: {}\n",
             !shared.exists ? "none"
                            : fmt::format("{}, {} free{}", size_text(shared.bytes), size_text(shared.free_bytes),
                                          shared.is_writable ? "" : ", not writable"));
  fmt::print("  limits  locked memory: {}; open files: {}; processes: {}; address space: {}\n",
             size_text(machine.limits.locked_memory_bytes), count_text(machine.limits.open_files),
             count_text(machine.limits.processes), size_text(machine.limits.address_space_bytes));
}

void print_bus(const BusFacts& bus) {
  for (const NetworkInterface& interface : bus.interfaces)
    fmt::print("  net     {}: {}{}{}\n", interface.name, interface.is_loopback ? "loopback" : interface.state,
               interface.speed_mbps > 0 ? fmt::format(", {} Mbit/s", interface.speed_mbps) : "",
               place_text(interface.place));
  for (const RdmaDevice& device : bus.rdma)
    fmt::print("  rdma    {}: {}{}\n", device.name,
               device.is_active ? fmt::format("active, {}, {}", device.rate, device.link_layer) : "no active port",
               place_text(device.place));
  if (bus.rdma.empty()) fmt::print("  rdma    none\n");
  if (bus.gpus.empty())
    fmt::print("  gpus    none: {}\n", bus.why_no_gpus.empty() ? "CUDA finds none" : bus.why_no_gpus);
  print_gpus(bus.gpus);
  if (bus.gpus.size() > 1) print_peers(bus.gpus);
}

void print_verdict(const Verdict& verdict) {
  if (verdict.layout.empty()) return fmt::print("{}: {}: {}\n", to_string(verdict.status), verdict.link, verdict.why);
  fmt::print("  {:<22} {:<14}", verdict.link, verdict.layout);
  const std::string also =
      verdict.not_offered.empty() ? "" : fmt::format("; not offered: {}", fmt::join(verdict.not_offered, ", "));
  if (verdict.status == Status::not_offered)
    fmt::print("not offered: {}\n", verdict.why);
  else if (verdict.status == Status::ok)
    fmt::print("ok      {} cases, {} comparisons, {:.2f} s{}\n", verdict.num_ok, verdict.num_comparisons,
               verdict.seconds, also);
  else
    fmt::print("{}  {} of {} cases ok{}\n    {}\n", verdict.status == Status::failed ? "FAILED" : "NOT ALL CHECKED",
               verdict.num_ok, verdict.num_cases, also, verdict.why);
}

ordered_json machine_report(const MachineFacts& machine) {
  ordered_json nodes = ordered_json::array();
  for (const NumaNode& node : machine.numa_nodes)
    nodes.push_back({{"index", node.index}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}});
  return {{"cpu", machine.cpu},
          {"cpus", machine.cpus},
          {"allowed_cpus", machine.allowed_cpus},
          {"allowed_list", machine.allowed_list},
          {"numa_nodes", nodes},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"control_group",
           {{"memory_bytes", limit_json(machine.group.memory_bytes)},
            {"memory_room_bytes", limit_json(machine.group.memory_room_bytes)},
            {"cpus", limit_json(machine.group.cpus)}}},
          {"shared_memory",
           {{"exists", machine.shared_memory.exists},
            {"is_writable", machine.shared_memory.is_writable},
            {"bytes", machine.shared_memory.bytes},
            {"free_bytes", machine.shared_memory.free_bytes}}},
          {"limits",
           {{"locked_memory_bytes", number_or_null(machine.limits.locked_memory_bytes)},
            {"open_files", number_or_null(machine.limits.open_files)},
            {"processes", number_or_null(machine.limits.processes)},
            {"address_space_bytes", number_or_null(machine.limits.address_space_bytes)}}}};
}

ordered_json bus_report(const BusFacts& bus) {
  ordered_json report = {{"network", ordered_json::array()}, {"rdma", ordered_json::array()},
                         {"gpus", ordered_json::array()},    {"gpus_on_bus", bus.gpus_on_bus},
                         {"gpu_files", bus.gpu_files},       {"why_no_gpus", bus.why_no_gpus}};
  for (const NetworkInterface& interface : bus.interfaces) {
    ordered_json entry = {
        {"name", interface.name},
        {"state", interface.state},
        {"is_loopback", interface.is_loopback},
        {"speed_mbps", interface.speed_mbps > 0 ? ordered_json(interface.speed_mbps) : ordered_json()}};
    entry.update(place_json(interface.place));
    report["network"].push_back(entry);
  }
  for (const RdmaDevice& device : bus.rdma) {
    ordered_json entry = {{"name", device.name},
                          {"is_active", device.is_active},
                          {"rate", device.rate},
                          {"link_layer", device.link_layer}};
    entry.update(place_json(device.place));
    report["rdma"].push_back(entry);
  }
  for (std::size_t i = 0; i < bus.gpus.size(); ++i) report["gpus"].push_back(gpu_json(bus.gpus[i], i));
  return report;
}

ordered_json verdict_report(const std::vector<Verdict>& verdicts) {
  ordered_json report = ordered_json::array();
  for (const Verdict& verdict : verdicts)
    report.push_back({{"link", verdict.link},
                      {"layout", verdict.layout.empty() ? ordered_json() : ordered_json(verdict.layout)},
                      {"status", to_string(verdict.status)},
                      {"cases", verdict.num_cases},
                      {"ok", verdict.num_ok},
                      {"failed", verdict.num_failed},
                      {"comparisons", verdict.num_comparisons},
                      {"seconds", verdict.seconds},
                      {"why", verdict.why},
                      {"not_offered", verdict.not_offered}});
  return report;
}

}  // namespace shunt::cli
