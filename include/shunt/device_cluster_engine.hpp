// Plans shuffles and carries them out on GPUs of several nodes. Only in builds with CUDA (SHUNT_CUDA); link
// shunt::device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shunt/device_engine.hpp"
#include "shunt/device_heap.hpp"
#include "shunt/device_plan.hpp"
#include "shunt/device_rows.hpp"
#include "shunt/device_ticket.hpp"
#include "shunt/engine.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/stream.hpp"
#include "shunt/tensor.hpp"
#include "shunt/world.hpp"

namespace shunt {

/// How rows travel between nodes.
enum class DeviceNetwork : std::uint8_t {
  world,  ///< through pinned memory of the host, by the network that joined the world
  nccl,   ///< by NCCL, from device to device; its library is looked for when it is needed. All ranks the same.
};

struct DeviceClusterOptions {
  /// As in EngineOptions; rows have no companions.
  EngineOptions engine = {};
  /// Rows travel between nodes in batches that one kernel packs or unpacks, of at most so many bytes, or one row. Each
  /// way has so many of them in pinned memory; for NCCL, one each way for every rank, in device memory.
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::int32_t num_batches = 16;
  DeviceNetwork network = DeviceNetwork::world;
};

struct DeviceClusterPlanData;

/// A cheap handle; copies share one plan. Made by DeviceClusterEngine::plan, valid with that engine alone. Pointers are
/// device pointers, valid as long as the plan.
class DeviceClusterPlan {
 public:
  DeviceClusterPlan() = default;
  explicit DeviceClusterPlan(std::shared_ptr<const DeviceClusterPlanData> data) : data_(std::move(data)) {}

  /// Sizes, traffic, and the same arrays for the host.
  [[nodiscard]] const Plan& host() const;

  /// [local experts + 1]: first expert-major row of each local expert; the last is where they all end.
  [[nodiscard]] const std::int32_t* expert_offsets() const;
  /// [local experts]: rows of each, without padding.
  [[nodiscard]] const std::int32_t* expert_counts() const;

  // `token_unique`; as in Plan.
  [[nodiscard]] const std::int32_t* unique_of_expert_row() const;
  [[nodiscard]] const std::int32_t* expert_rows_of_unique() const;
  [[nodiscard]] const std::int32_t* unique_experts() const;
  [[nodiscard]] const float* unique_weights() const;

  /// For the engine.
  [[nodiscard]] const std::shared_ptr<const DeviceClusterPlanData>& data() const { return data_; }

 private:
  std::shared_ptr<const DeviceClusterPlanData> data_;
};

/// As Engine, with tensors in device memory: same plans, same slots, same sums, any world, several operations at a
/// time. Rows stay on the device within a node; between nodes they go through pinned memory and the world's network, or
/// through NCCL. The host takes part, so none of it can be captured in a CUDA graph (other streams may be, meanwhile,
/// in any mode), and tickets' wait_on() makes the host wait too; in exchange no kernel ever waits, but for NCCL's,
/// which therefore want each rank on a device of its own. Within one node DeviceEngine is faster.
///
/// Not light: every engine pins twice num_batches batches and one more (33 MiB by default), and has a batch of device
/// memory, three streams and, with NCCL, a communicator and its batches. Make one per shape, not one per layer. More
/// than two ranks of a process that share a device do better with CUDA_DEVICE_MAX_CONNECTIONS of at least three for
/// each: streams that share a connection hold each other up, though never for ever.
///
/// An operation starts when what was put on `stream` before is done; null: its inputs are complete, and nothing uses
/// its outputs. It is carried out on a stream of the engine's own, so its inputs and outputs must live, untouched,
/// until it is complete: wait for its ticket. Dropping the last copy of a ticket waits too, as with Engine's. What a
/// fault ends, it ends as in Engine: with an Error on all ranks. The device stays as it is, but for memory of the heap
/// that others may still use: what a failed operation showed them is handed to nobody else.
class DeviceClusterEngine {
 public:
  struct Impl;

  /// Collective.
  DeviceClusterEngine(World& world, const DeviceHeap& heap, const DeviceClusterOptions& options);
  /// For tests: with another device.
  explicit DeviceClusterEngine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// Collective, blocking; waits for `stream`. Layouts are expert_major and token_unique.
  [[nodiscard]] DeviceClusterPlan plan(const DeviceRouting& routing, const ExpertMap& map,
                                       const PlanOptions& options = {}, Stream stream = nullptr);

  /// x: [tokens, hidden] in the row dtype; for fp8 rows also f32, bf16 or f16, which is quantised once, before it
  /// travels. What did not come from DeviceHeap::allocate, of `out` and `out_scales`, costs a copy.
  [[nodiscard]] DeviceTicket<DeviceRows> dispatch(const DeviceClusterPlan& plan, const ConstTensor& x,
                                                  const DeviceDispatchOptions& options = {});

  /// As Engine::combine. Rows that did not come from DeviceHeap::allocate cost a copy.
  [[nodiscard]] DeviceTicket<Tensor> combine(const DeviceClusterPlan& plan, const ConstTensor& expert_out,
                                             const DeviceCombineOptions& options = {});

  /// As Engine::dispatch_backward.
  [[nodiscard]] DeviceTicket<Tensor> dispatch_backward(const DeviceClusterPlan& plan, const ConstTensor& grad_rows,
                                                       const DeviceCombineOptions& options = {});

  /// As Engine::combine_backward.
  [[nodiscard]] DeviceTicket<DeviceGradients> combine_backward(const DeviceClusterPlan& plan,
                                                               const ConstTensor& grad_out,
                                                               const ConstTensor& expert_out, Stream stream = nullptr);

  /// A buffer of [num_rows, hidden] in the expert dtype that makes combine zero-copy. Not collective.
  [[nodiscard]] Tensor expert_out(const DeviceClusterPlan& plan) const;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace shunt
