// One op of a graph with its values in memory, and the table of what computes each kind.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"
#include "runtime/view.hpp"

namespace shunt::runtime {

struct OpCall {
  const graph::Graph& graph;
  const graph::Op& op;
  std::vector<View> operands;
  std::vector<View> results;
  /// Of the plan among the operands: the first row of each local expert, and the number of rows.
  std::span<const std::int32_t> expert_offsets = {};

  [[nodiscard]] const View& in(std::size_t i) const { return operands[i]; }
  [[nodiscard]] const View& out(std::size_t i = 0) const { return results[i]; }
  [[nodiscard]] double real(std::string_view name, double fallback = 0) const {
    return op.attributes.real(name, fallback);
  }
  [[nodiscard]] std::int64_t integer(std::string_view name, std::int64_t fallback = 0) const {
    return op.attributes.integer(name, fallback);
  }
  [[nodiscard]] graph::DimId dim(std::string_view name) const { return op.attributes.dims(name).front(); }
  /// The axis of a view with this role, which the op's type rule demands.
  [[nodiscard]] const Axis& axis_of_role(const View& view, graph::DimRole role) const;
  /// The first index of a part in its whole; 0 for other dimensions.
  [[nodiscard]] std::int64_t begin_of(graph::DimId dim) const;
};

/// Axes of a view without those of `removed`.
[[nodiscard]] std::vector<Axis> axes_without(const View& view, std::span<const graph::DimId> removed);

/// Computes the results of an op of the compute lane, on the calling thread. Results overlap operands only where the
/// op's table row says that it overwrites them.
void compute(const OpCall& call);

}  // namespace shunt::runtime
