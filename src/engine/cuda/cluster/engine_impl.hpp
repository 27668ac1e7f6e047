// What a DeviceClusterEngine holds.
#pragma once

#include <memory>
#include <string_view>

#include "engine/cuda/cluster/dispatch.hpp"
#include "engine/cuda/cluster/lane.hpp"
#include "engine/cuda/cluster/shuffle.hpp"
#include "engine/engine_impl.hpp"
#include "shunt/device_cluster_engine.hpp"

namespace shunt {

struct DeviceClusterEngine::Impl {
  /// `nccl_network`: null where far ranks are reached by the world's own network.
  Impl(Engine host_engine, std::shared_ptr<device::Lane> device_lane,
       std::shared_ptr<device::NcclNetwork> nccl_network = nullptr);

  /// The largest segment that travels between nodes.
  static std::size_t most_segment_bytes(const EngineOptions& options);

  [[nodiscard]] Engine::Impl& engine() const { return *host.impl(); }
  [[nodiscard]] const EngineOptions& options() const { return engine().options; }
  [[nodiscard]] const PlanData& check_plan(const DeviceClusterPlan& plan, std::string_view operation) const;
  void check_tensor(std::string_view operation, std::string_view name, const ConstTensor& tensor, DType dtype,
                    std::int64_t rows) const {
    checks().tensor(operation, name, tensor, dtype, rows, options().hidden);
  }
  [[nodiscard]] TensorChecks checks() const { return {engine().rank(), options().dtype, options().hidden, true}; }
  [[nodiscard]] device::SumOrder sum_order() const;

  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const;
  /// Where peers can address it: the tensor itself, or a block of the same size.
  [[nodiscard]] Tensor for_peers(const ConstTensor& tensor) const;
  [[nodiscard]] std::uint64_t offset_of(const Tensor& tensor) const;
  [[nodiscard]] Tensor output(std::string_view operation, const Tensor& given, DType dtype, std::int64_t rows) const;
  /// Empty where rows have none.
  [[nodiscard]] Tensor output_scales(const Tensor& given, std::int64_t rows) const;
  /// What dispatch is to deliver there.
  [[nodiscard]] device::ClusterDispatch::Output delivery(const Tensor& out) const;
  [[nodiscard]] device::ClusterShuffle::Place place(const DeviceClusterPlan& plan, Stream stream) const;

  DeviceTicket<Tensor> pull(OpKind kind, const DeviceClusterPlan& plan, const ConstTensor& rows,
                            const DeviceCombineOptions& pull_options);

  template <class Op>
  std::shared_ptr<DevicePending> issue(const DeviceClusterPlan& plan, const Announcement& announcement,
                                       typename Op::Inputs inputs);

  Engine host;
  std::shared_ptr<device::Lane> lane;
  std::shared_ptr<device::NcclNetwork> nccl;  // ends before the lane, which waits for what is on it
};

}  // namespace shunt
