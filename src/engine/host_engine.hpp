// The engine on host memory.
#pragma once

#include "engine/host_driven_engine.hpp"
#include "engine/row_block.hpp"

namespace shunt {

class HostEngine final : public HostDrivenEngine {
 public:
  HostEngine(World& engine_world, const EngineOptions& engine_options)
      : HostDrivenEngine(engine_world, engine_options, EngineKind::host) {}

  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const override;
  void copy(const ConstTensor& from, const Tensor& to) const override;
  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) override;
  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                      const DispatchOptions& dispatch_options) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Pull& pull) override;
  [[nodiscard]] std::shared_ptr<Pending> start(const Backward& backward) override;

 private:
  [[nodiscard]] RowFormat row_format(Layout layout) const;
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const {
    return world->comm->transport().offset_of(data, bytes);
  }
  /// The tensor itself if peers can read it, else a copy.
  [[nodiscard]] Block publish(const ConstTensor& tensor) const;
  /// A copy with packed rows moved back to their padded slots.
  [[nodiscard]] Block publish_packed(const PlanData& plan, const ConstTensor& tensor) const;
};

}  // namespace shunt
