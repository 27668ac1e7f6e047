#include "shunt/machine.hpp"

#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "core/fail.hpp"
#include "core/host_name.hpp"

namespace shunt {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyTopology>;

HwlocTopology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail(ErrorCode::system, "hwloc: can't create a topology");
  HwlocTopology topology(raw);
  if (hwloc_topology_load(raw) != 0) fail(ErrorCode::system, "hwloc: can't read this machine's topology");
  return topology;
}

void find_last_level_caches(hwloc_topology_t topology, Machine& machine) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    if (!cache) continue;
    machine.last_level_cache_bytes = cache->attr->cache.size;
    machine.last_level_caches = hwloc_get_nbobjs_by_type(topology, type);
    return;
  }
}

std::string cpu_model(hwloc_topology_t topology) {
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  return model ? model : "";
}

}  // namespace

Machine Machine::detect() {
  const HwlocTopology topology = load_topology();
  const auto count = [&](hwloc_obj_type_t type) { return std::max(1, hwloc_get_nbobjs_by_type(topology.get(), type)); };

  Machine machine;
  machine.hostname = host_name();
  machine.cpu = cpu_model(topology.get());
  machine.packages = count(HWLOC_OBJ_PACKAGE);
  machine.cores = count(HWLOC_OBJ_CORE);
  machine.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  find_last_level_caches(topology.get(), machine);
  // Not hwloc's sum over NUMA nodes, which leaves out memory that was added while the machine ran.
  machine.memory_bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return machine;
}

}  // namespace shunt
