// What an Engine holds, and the checks that stand before every operation.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "engine/row_block.hpp"
#include "engine/shuffle.hpp"
#include "engine/tensor_checks.hpp"
#include "engine/world_impl.hpp"
#include "plan/planner.hpp"
#include "shunt/engine.hpp"

namespace shunt {

struct Engine::Impl {
  Impl(const World& world, const EngineOptions& options);

  std::shared_ptr<World::Impl> world;
  EngineOptions options;  ///< all defaults filled in
  std::uint64_t key;      ///< equal on all ranks: the world's n-th engine
  std::uint64_t serial;   ///< unique in this process, to recognise this engine's plans
  std::uint32_t next_sequence = 0;
  std::uint32_t num_plans = 0;

  [[nodiscard]] RankId rank() const { return world->group->self; }
  [[nodiscard]] EngineShape shape() const;
  [[nodiscard]] RowFormat row_format(Layout layout) const;
  [[nodiscard]] TensorChecks checks() const { return {rank(), options.dtype, options.hidden, false}; }

  // Each throws Error(invalid_argument) that names rank, operation and cause.
  [[nodiscard]] const PlanData& check_plan(const Plan& plan, std::string_view operation) const;
  void check_tensor(std::string_view operation, std::string_view name, const ConstTensor& tensor, DType dtype,
                    std::int64_t rows) const {
    checks().tensor(operation, name, tensor, dtype, rows, options.hidden);
  }
  /// That the trace which the routing is recorded to, if any, is one of such routings.
  void check_trace(const Routing& routing, const ExpertMap& map) const;
  /// Peers read inputs while this rank writes outputs.
  void check_apart(std::string_view operation, const ConstTensor& input, const Tensor& out) const;

  [[nodiscard]] Block allocate(std::size_t bytes) const { return world->fabric->allocate(bytes); }
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const {
    return world->fabric->transport().offset_of(data, bytes);
  }
  /// A new tensor of [plan.num_rows(), hidden] in the expert dtype.
  [[nodiscard]] Tensor expert_rows(const PlanData& plan) const;
  /// The tensor itself where peers can address it, else a copy of it.
  [[nodiscard]] Block show_to_peers(const ConstTensor& tensor) const;

  /// combine and dispatch_backward.
  Ticket<Tensor> pull(OpKind kind, const Plan& plan, const ConstTensor& rows, const CombineOptions& pull_options);

  template <class Op>
  std::shared_ptr<Pending> issue(const Plan& plan, const Announcement& announcement, typename Op::Inputs inputs) {
    const Shuffle::Context context{world->fabric->transport(), world->group, key, *options.deadline, plan.data()};
    return issue(std::make_shared<Op>(context, announcement, std::move(inputs)));
  }
  std::shared_ptr<Pending> issue(const std::shared_ptr<Operation>& operation);
};

}  // namespace shunt
