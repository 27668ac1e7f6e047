// libshunt_cuda.so: what the core loads when something on a device is made.
#include "core/backend.hpp"
#include "core/build.hpp"
#include "engine/cuda/cluster/cluster_engine.hpp"
#include "engine/cuda/describe_devices.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/cuda/node_engine.hpp"
#include "engine/cuda/pruner.hpp"
#include "engine/device_library.hpp"

namespace shunt {
namespace {

std::shared_ptr<Engine::Impl> make_engine(World& world, const EngineOptions& options) {
  const bool is_cluster = world.impl()->group->has_far();
  (void)complete(world, options, is_cluster ? EngineKind::cluster : EngineKind::node);  // before anything is allocated
  auto heap = DeviceHeap::of(world, options);
  return is_cluster ? make_cluster_engine(world, options, std::move(heap))
                    : make_node_engine(world, options, std::move(heap));
}

constexpr DeviceLibrary kLibrary = {make_engine, make_device_pruner, device::describe_devices};

}  // namespace
}  // namespace shunt

extern "C" [[gnu::visibility("default")]] shunt::Backend shunt_backend() {
  return {shunt::build_id().data(), &shunt::kLibrary};
}
