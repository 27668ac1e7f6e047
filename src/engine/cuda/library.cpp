// The entry of libshunt_cuda.so.
#include <cuda_runtime_api.h>

#include "core/backend.hpp"
#include "core/build.hpp"
#include "core/cuda/on_device.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/cuda/library.hpp"
#include "engine/cuda/node_engine.hpp"
#include "kernels/cuda/bulk_copy_rows.hpp"

namespace shunt {
namespace {

/// Checked before any collective step, as `sms` may differ between ranks and the call may be repeated.
void check_sms(const World& world, const EngineOptions& options) {
  const std::int32_t sms = options.device->sms;
  if (sms == 0) return;
  const Call call{world.rank(), EngineKind::node, "engine", options.name};
  const std::int32_t index = DeviceHeap::device_of(world, options.device->index);
  const device::OnDevice scope(index);
  int all = 0;
  device::check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, index), "count multiprocessors");
  call.demand(sms <= all, "device.sms is {}, expected 0 to {}", sms, all);
  if (!device::has_bulk_copies())
    call.fail(ErrorCode::unsupported,
              "device.sms is {}, but device {} has no bulk copies (compute capability 9.0), or this build no code for "
              "them",
              sms, index);
}

std::shared_ptr<Engine::Impl> make_engine(World& world, const EngineOptions& options) {
  const bool is_cluster = world.impl()->group->has_far();
  (void)complete(world, options, is_cluster ? EngineKind::cluster : EngineKind::node);  // before anything is allocated
  if (!is_cluster) check_sms(world, options);
  auto heap = DeviceHeap::of(world, options);
  if (is_cluster) return make_cluster_engine(world, options, std::move(heap));
  return std::make_shared<NodeEngine>(world, options, std::move(heap));
}

constexpr DeviceLibrary kLibrary = {make_engine, make_device_pruner, device::describe_devices};

}  // namespace
}  // namespace shunt

extern "C" [[gnu::visibility("default")]] shunt::Backend shunt_backend() {
  return {"cuda", shunt::build_id().data(), &shunt::kLibrary};
}
