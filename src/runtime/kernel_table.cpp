#include <algorithm>

#include "runtime/kernels.hpp"

namespace shunt::runtime {
namespace {

using graph::OpKind;
using Kernel = void (*)(const OpCall&);

/// A row per kind of op. Null: the executor does it, as a view (its memory is another value's), a declaration, or an op
/// of the comm lane.
struct Entry {
  OpKind kind;
  Kernel kernel;
};

constexpr Entry kTable[] = {
    {OpKind::input, nullptr},
    {OpKind::param, nullptr},
    {OpKind::state, nullptr},
    {OpKind::constant, nullptr},
    {OpKind::opaque, nullptr},
    {OpKind::rename, nullptr},
    {OpKind::part, nullptr},
    {OpKind::join, nullptr},
    {OpKind::embedding, kernels::embedding},
    {OpKind::embedding_dw, kernels::embedding_dw},
    {OpKind::rope, kernels::rope},
    {OpKind::matmul, kernels::matmul},
    {OpKind::grouped_matmul, kernels::grouped_matmul},
    {OpKind::softmax, kernels::softmax},
    {OpKind::softmax_dx, kernels::softmax_dx},
    {OpKind::attention, kernels::attention},
    {OpKind::attention_dx, kernels::attention_dx},
    {OpKind::norm, kernels::norm},
    {OpKind::norm_dx, kernels::norm_dx},
    {OpKind::norm_dw, kernels::norm_dw},
    {OpKind::map, kernels::map},
    {OpKind::map_dx, kernels::map_dx},
    {OpKind::swiglu, kernels::swiglu},
    {OpKind::swiglu_dx, kernels::swiglu_dx},
    {OpKind::add, kernels::add},
    {OpKind::mul, kernels::mul},
    {OpKind::scale, kernels::scale},
    {OpKind::reduce, kernels::reduce},
    {OpKind::expand, kernels::expand},
    {OpKind::topk, kernels::topk},
    {OpKind::pick, kernels::pick},
    {OpKind::pick_dx, kernels::pick_dx},
    {OpKind::limit, kernels::limit},
    {OpKind::count, kernels::count},
    {OpKind::balance_loss, kernels::balance_loss},
    {OpKind::balance_loss_dx, kernels::balance_loss_dx},
    {OpKind::plan, nullptr},
    {OpKind::dispatch, nullptr},
    {OpKind::combine, nullptr},
    {OpKind::combine_dx, nullptr},
    {OpKind::all_reduce, nullptr},
    {OpKind::cross_entropy, kernels::cross_entropy},
    {OpKind::cross_entropy_dx, kernels::cross_entropy_dx},
    {OpKind::sgd, kernels::sgd},
    {OpKind::adam, kernels::adam},
    {OpKind::bias_update, kernels::bias_update},
};

constexpr bool rows_stand_where_their_kind_says() {
  for (std::size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<std::size_t>(kTable[i].kind) != i) return false;
  return std::size(kTable) == static_cast<std::size_t>(OpKind::bias_update) + 1;
}
static_assert(rows_stand_where_their_kind_says(), "every kind of op has a row");

}  // namespace

void compute(const OpCall& call) {
  const Kernel kernel = kTable[static_cast<std::size_t>(call.op.kind)].kernel;
  if (!kernel) fail(ErrorCode::unsupported, "{}: this op can't be executed", graph::info(call.op.kind).name);
  kernel(call);
}

const Axis& OpCall::axis_of_role(const View& view, graph::DimRole role) const {
  const auto found = std::ranges::find(view.axes, role, [&](const Axis& axis) { return graph.dims[axis.dim].role; });
  SHUNT_CHECK(found != view.axes.end());
  return *found;
}

std::int64_t OpCall::begin_of(graph::DimId dim) const {
  const graph::Dim& part = graph.dims[dim];
  return part.whole.valid() ? begin_of(part.whole) + graph.dims[part.whole].size * part.part / part.parts : 0;
}

std::vector<Axis> axes_without(const View& view, std::span<const graph::DimId> removed) {
  std::vector<Axis> left;
  std::ranges::copy_if(view.axes, std::back_inserter(left),
                       [&](const Axis& axis) { return !graph::contains(removed, axis.dim); });
  return left;
}

}  // namespace shunt::runtime
