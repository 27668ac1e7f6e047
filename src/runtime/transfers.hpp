// The ops of the comm lane: plans, rows between tokens and experts, and sums over ranks.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/step_memory.hpp"
#include "shunt/engine.hpp"

namespace shunt::runtime {

/// An op of the comm lane in flight. If it is destroyed before it was finished, it waits for its operation.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Never blocks.
  [[nodiscard]] virtual bool done() const = 0;
  /// Call once done(): its results are in memory afterwards. Throws the Error that ended it.
  virtual void finish() = 0;
};

struct TransferOptions {
  /// By layer; contiguous where there is none.
  std::map<std::int32_t, ExpertMap> maps = {};
};

/// For one thread at a time.
class Transfers {
 public:
  /// Collective. Throws Error(unsupported) for shuffles that engines don't have, such as a sum whose weights are not
  /// those of its plan.
  Transfers(World& world, const graph::Graph& graph, StepMemory& memory, const TransferOptions& options);

  /// Collective: all ranks start the same ops in the same order.
  [[nodiscard]] std::unique_ptr<Transfer> start(const graph::Op& op);

  /// The first row of each local expert, and their number: of the plan that the op reads, if any. For the compute lane,
  /// once the plan is made.
  [[nodiscard]] std::span<const std::int32_t> expert_offsets(const graph::Op& op) const;

 private:
  /// What all plans of a layer share.
  struct Layer {
    ExpertMap map;
    Engine engine;
  };
  /// A plan value, which is made anew in every step.
  struct Planned {
    Layer* layer = nullptr;
    graph::ValueId weights;  // invalid: all ones
    graph::DimId rows;
    Plan plan;
  };

  void add_layer(const graph::Op& plan, const TransferOptions& options);
  void check(const graph::Op& op) const;
  [[nodiscard]] std::int64_t width_of(const graph::Op& op) const;
  [[nodiscard]] std::int64_t width_of_rows(graph::ValueId plan) const;
  [[nodiscard]] Planned& plan_of(const graph::Op& op) { return plans_.at(op.operands[1]); }

  std::unique_ptr<Transfer> plan(const graph::Op& op);
  std::unique_ptr<Transfer> dispatch(const graph::Op& op);
  std::unique_ptr<Transfer> combine(const graph::Op& op);
  std::unique_ptr<Transfer> combine_dx(const graph::Op& op);
  std::unique_ptr<Transfer> all_reduce(const graph::Op& op);

  World& world_;
  const graph::Graph& graph_;
  StepMemory& memory_;
  std::map<std::int32_t, Layer> layers_;
  std::map<graph::ValueId, Planned> plans_;
};

}  // namespace shunt::runtime
