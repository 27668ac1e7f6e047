#include "shunt/machine.hpp"

#include <dlfcn.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>

#include "core/fail.hpp"
#include "core/process_id.hpp"

namespace shunt {
namespace {

/// The functions of hwloc that are used here; its inline functions need no library.
struct Hwloc {
  decltype(&hwloc_topology_init) topology_init;
  decltype(&hwloc_topology_load) topology_load;
  decltype(&hwloc_topology_destroy) topology_destroy;
  decltype(&hwloc_get_type_depth) get_type_depth;
  decltype(&hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth;
  decltype(&hwloc_get_obj_by_depth) get_obj_by_depth;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

/// None if hwloc is not installed.
std::optional<Hwloc> load_hwloc() {
  void* const library = dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
  Hwloc hwloc{};
  if (library && find(library, "hwloc_topology_init", hwloc.topology_init) &&
      find(library, "hwloc_topology_load", hwloc.topology_load) &&
      find(library, "hwloc_topology_destroy", hwloc.topology_destroy) &&
      find(library, "hwloc_get_type_depth", hwloc.get_type_depth) &&
      find(library, "hwloc_get_nbobjs_by_depth", hwloc.get_nbobjs_by_depth) &&
      find(library, "hwloc_get_obj_by_depth", hwloc.get_obj_by_depth))
    return hwloc;
  return std::nullopt;
}

class CpuTopology {
 public:
  explicit CpuTopology(const Hwloc& hwloc) : hwloc_(hwloc) {
    if (hwloc_.topology_init(&topology_) != 0) fail(ErrorCode::system, "hwloc: can't create a topology");
    if (hwloc_.topology_load(topology_) == 0) return;
    hwloc_.topology_destroy(topology_);
    fail(ErrorCode::system, "hwloc: can't read this machine's topology");
  }
  CpuTopology(const CpuTopology&) = delete;
  CpuTopology& operator=(const CpuTopology&) = delete;
  ~CpuTopology() { hwloc_.topology_destroy(topology_); }

  [[nodiscard]] int count(hwloc_obj_type_t type) const {
    const int depth = hwloc_.get_type_depth(topology_, type);
    return depth == HWLOC_TYPE_DEPTH_UNKNOWN ? 0 : static_cast<int>(hwloc_.get_nbobjs_by_depth(topology_, depth));
  }
  /// The first object of this type; null if there is none.
  [[nodiscard]] hwloc_obj_t first(hwloc_obj_type_t type) const {
    return count(type) > 0 ? hwloc_.get_obj_by_depth(topology_, hwloc_.get_type_depth(topology_, type), 0) : nullptr;
  }

 private:
  Hwloc hwloc_;
  hwloc_topology_t topology_ = nullptr;
};

void find_last_level_caches(const CpuTopology& topology, Machine& machine) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE}) {
    const hwloc_obj_t cache = topology.first(type);
    if (!cache) continue;
    machine.last_level_cache_bytes = cache->attr->cache.size;
    machine.last_level_caches = topology.count(type);
    return;
  }
}

std::string cpu_model(const CpuTopology& topology) {
  const hwloc_obj_t package = topology.first(HWLOC_OBJ_PACKAGE);
  for (unsigned i = 0; package && i < package->infos_count; ++i)
    if (std::string_view(package->infos[i].name) == "CPUModel") return package->infos[i].value;
  return "";
}

}  // namespace

Machine Machine::detect() {
  Machine machine;
  machine.hostname = host_name();
  machine.packages = machine.numa_nodes = 1;
  machine.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (const auto hwloc = load_hwloc()) {
    const CpuTopology topology(*hwloc);
    machine.cpu = cpu_model(topology);
    machine.packages = std::max(1, topology.count(HWLOC_OBJ_PACKAGE));
    machine.cores = std::max(1, topology.count(HWLOC_OBJ_CORE));
    machine.numa_nodes = std::max(1, topology.count(HWLOC_OBJ_NUMANODE));
    find_last_level_caches(topology, machine);
  }
  // Not hwloc's sum over NUMA nodes, which omits memory that was added while the machine ran.
  machine.memory_bytes =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return machine;
}

}  // namespace shunt
