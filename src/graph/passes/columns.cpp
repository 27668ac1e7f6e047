#include "graph/passes/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/autodiff.hpp"

namespace shunt::graph {
namespace {

constexpr double kMostPieces = 16;

/// Invalid if there is none.
DimId widest_column(const Graph& graph, const Op& op) {
  DimId widest;
  for (const DimId dim : graph.type(op.results[0]).dims)
    if (split_of(graph, op, dim) == Split::free && graph.dims[dim].role != DimRole::local_expert &&
        (!widest.valid() || graph.dims[dim].size > graph.dims[widest].size))
      widest = dim;
  return widest;
}

class ColumnCutter {
 public:
  explicit ColumnCutter(const Graph& graph) : from_(graph), to_(graph.name, graph.ranks), made_(graph.values().size()) {
    to_.dims = graph.dims;
  }

  Graph run(const std::vector<std::int32_t>& pieces) {
    for (std::size_t i = 0; i < from_.ops().size(); ++i) {
      const Op& op = from_.op(OpId(i));
      const DimId column = pieces[i] > 1 ? widest_column(from_, op) : DimId();
      if (column.valid())
        cut(op, column, pieces[i]);
      else
        copy(op);
    }
    for (const ValueId output : from_.outputs) to_.outputs.push_back(made_[output.index()]);
    return std::move(to_);
  }

 private:
  std::vector<ValueId> operands_of(const Op& op) const {
    std::vector<ValueId> operands;
    for (const ValueId operand : op.operands) operands.push_back(made_[operand.index()]);
    return operands;
  }

  void copy(const Op& op) {
    const OpId copied = to_.adopt(from_, op, operands_of(op));
    for (std::size_t i = 0; i < op.results.size(); ++i) made_[op.results[i].index()] = to_.op(copied).results[i];
  }

  /// The dimensions of a plan belong to its tokens, even if one has the same name as a column.
  bool has_column(ValueId operand, DimId column) const {
    return from_.type(operand).has(column) && from_.type(operand).element != Element::plan;
  }

  void cut(const Op& op, DimId column, std::int32_t pieces) {
    const std::string& name = from_.value(op.results[0]).name;
    std::vector<ValueId> results;
    for (std::int32_t piece = 0; piece < pieces; ++piece) {
      const Attributes to = {{"to", std::vector{to_.dims.part(column, piece, pieces)}}};
      std::vector<ValueId> operands = operands_of(op);
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (has_column(op.operands[i], column))
          operands[i] = to_.op(to_.append(OpKind::part, {operands[i]}, to,
                                          {fmt::format("{}.c{}", to_.value(operands[i]).name, piece)}, op.origin))
                            .results[0];
      results.push_back(
          to_.op(to_.append(op.kind, operands, op.attributes, {fmt::format("{}.c{}", name, piece)}, op.origin))
              .results[0]);
    }
    made_[op.results[0].index()] =
        to_.op(to_.append(OpKind::join, results, {{"to", std::vector{column}}}, {name}, op.origin)).results[0];
  }

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> made_;  // by old value
};

}  // namespace

Graph cut_columns(const Graph& graph, const std::vector<std::int32_t>& pieces) {
  return ColumnCutter(graph).run(pieces);
}

std::vector<std::int32_t> pieces_for(const Graph& graph, const CostModel& cost, double seconds) {
  const std::vector<bool> is_weight_gradient = weight_gradients(graph);
  std::vector<std::int32_t> pieces(graph.ops().size(), 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (!is_weight_gradient[i] || (op.kind != OpKind::matmul && op.kind != OpKind::grouped_matmul)) continue;
    const DimId column = widest_column(graph, op);
    if (!column.valid()) continue;
    const double wanted = std::ceil(cost.of(graph, op).compute_s / seconds);
    const double most = static_cast<double>(graph.dims[column].size / cost.cluster().tile);
    pieces[i] = std::max(1, static_cast<std::int32_t>(std::min({wanted, most, kMostPieces})));
  }
  return pieces;
}

}  // namespace shunt::graph
