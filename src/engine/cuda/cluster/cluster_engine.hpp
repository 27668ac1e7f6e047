// The engine on devices of several nodes: the host drives, as on host memory, and kernels move rows.
#pragma once

#include <memory>
#include <string_view>

#include "engine/cuda/cluster/dispatch.hpp"
#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/shuffle.hpp"
#include "engine/cuda/device_heap.hpp"
#include "engine/host_driven_engine.hpp"

namespace shunt {

/// Collective.
std::shared_ptr<Engine::Impl> make_cluster_engine(World& world, const EngineOptions& options,
                                                  std::shared_ptr<DeviceHeap> heap);

class ClusterEngine final : public HostDrivenEngine {
 public:
  /// `nccl`: null where far ranks are reached by the world's own network.
  ClusterEngine(World& world, const EngineOptions& options, Memory memory, std::shared_ptr<device::Lane> lane,
                std::shared_ptr<device::NcclNetwork> nccl);

  /// The largest segment that travels between nodes.
  static std::size_t most_segment_bytes(const EngineOptions& options);

  [[nodiscard]] Memory memory() const override { return memory_; }
  [[nodiscard]] Stream stream() const override { return options.device->stream; }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  void copy(const ConstTensor& from, const Tensor& to) const override;
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) override;
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                      const DispatchOptions& dispatch_options) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Pull& pull) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Backward& backward) override;

 private:
  /// What waits for an operation to start: for the caller's stream, or the engine's.
  [[nodiscard]] Stream before(Stream callers) const { return callers ? callers : options.device->stream; }
  void require_here(Memory where, std::string_view operation) const;
  [[nodiscard]] device::SumOrder sum_order() const;
  /// The tensor itself where kernels can read it, else a copy, for which the host waits.
  [[nodiscard]] ConstTensor readable(const ConstTensor& tensor, Stream callers) const;
  /// Where peers can address it: the tensor itself, or a block of the same size.
  [[nodiscard]] Tensor for_peers(const ConstTensor& tensor) const;
  [[nodiscard]] std::uint64_t offset_of(const Tensor& tensor) const;
  /// What dispatch is to deliver there.
  [[nodiscard]] device::ClusterDispatch::Output delivery(const Tensor& out) const;
  [[nodiscard]] device::ClusterShuffle::Place place(const Plan& plan, Stream callers) const;
  template <class Op>
  [[nodiscard]] std::shared_ptr<Pending> launch(const Plan& plan, const Announcement& announcement,
                                                typename Op::Inputs inputs);

  Memory memory_;
  std::shared_ptr<device::Lane> lane_;
  std::shared_ptr<device::NcclNetwork> nccl_;  // ends before the lane, which waits for what is on it
};

}  // namespace shunt
