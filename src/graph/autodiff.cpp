#include "graph/autodiff.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "graph/program.hpp"

namespace shunt::graph {
namespace {

/// Values from which a gradient can reach a parameter.
std::vector<bool> values_that_want_gradients(const Graph& graph) {
  std::vector<bool> wanted(graph.values().size());
  for (const Op& op : graph.ops()) {
    const bool flows = op.kind == OpKind::param ||
                       (info(op.kind).gradient && std::any_of(op.operands.begin(), op.operands.end(),
                                                              [&](ValueId v) { return wanted[v.index()]; }));
    if (flows)
      for (const ValueId result : op.results) wanted[result.index()] = graph.type(result).element != Element::i32;
  }
  return wanted;
}

bool is_replicated(const Graph& graph, ValueId param) {
  const auto& dims = graph.type(param).dims;
  return std::none_of(dims.begin(), dims.end(),
                      [&](DimId dim) { return graph.dims[dim].role == DimRole::local_expert; });
}

}  // namespace

Backward::Backward(Graph& forward)
    : graph(forward), wanted_(values_that_want_gradients(forward)), contributions_(forward.values().size()) {}

std::optional<ValueId> Backward::gradient(ValueId value) {
  auto& all = contributions_[value.index()];
  if (all.empty()) return std::nullopt;
  if (all.size() > 1) all = {emit(OpKind::add, all, {}, value)};
  return all.front();
}

ValueId Backward::emit(OpKind kind, std::vector<ValueId> operands, Attributes attributes, ValueId of) {
  return graph.op(emit_several(kind, std::move(operands), std::move(attributes), {of})).results.front();
}

OpId Backward::emit_several(OpKind kind, std::vector<ValueId> operands, Attributes attributes,
                            const std::vector<ValueId>& of) {
  std::vector<std::string> names;
  for (const ValueId value : of) names.push_back(name_for(value));
  return graph.append(kind, std::move(operands), std::move(attributes), names, origin_);
}

void Backward::contribute_summed(ValueId value, ValueId gradient) {
  const std::vector<DimId> extra = without(graph.type(gradient).dims, graph.type(value).dims);
  contribute(value, extra.empty() ? gradient : emit(OpKind::reduce, {gradient}, {{"over", extra}}, value));
}

void Backward::differentiate(ValueId loss) {
  origin_ = {Phase::backward, -1};
  if (!graph.type(loss).dims.empty())
    fail(ErrorCode::invalid_argument, "%{} is no scalar, so it is no loss", graph.value(loss).name);
  if (!is_wanted(loss)) fail(ErrorCode::invalid_argument, "%{} depends on no parameter", graph.value(loss).name);
  contribute(
      loss,
      graph.op(graph.declare(OpKind::constant, {}, {{"value", 1.0}}, {name_for(loss)}, {{Element::f32, {}}}, origin_))
          .results.front());
  for (std::size_t i = graph.value(loss).producer.index() + 1; i-- > 0;) {
    const Op op = graph.op(OpId(i));  // a copy: rules append to the graph
    const auto arrived = [&](ValueId v) { return !contributions_[v.index()].empty(); };
    if (!info(op.kind).gradient || std::none_of(op.results.begin(), op.results.end(), arrived)) continue;
    if (std::none_of(op.operands.begin(), op.operands.end(), [&](ValueId v) { return is_wanted(v); })) continue;
    origin_ = {Phase::backward, op.origin.layer, op.origin.micro_batch};
    info(op.kind).gradient(*this, op);
  }
}

std::vector<std::pair<ValueId, ValueId>> append_backward(Graph& graph, ValueId loss) {
  const std::size_t forward_ops = graph.ops().size();
  Backward backward(graph);
  backward.differentiate(loss);
  std::vector<std::pair<ValueId, ValueId>> gradients;
  for (std::size_t i = 0; i < forward_ops; ++i) {
    if (graph.op(OpId(i)).kind != OpKind::param) continue;
    const ValueId param = graph.op(OpId(i)).results.front();
    if (const auto gradient = backward.gradient(param)) gradients.emplace_back(param, *gradient);
  }
  return gradients;
}

void append_updates(Graph& graph, const std::vector<std::pair<ValueId, ValueId>>& gradients,
                    const Optimizer& optimizer) {
  const auto declare = [&](OpKind kind, const std::string& name, std::vector<DimId> dims, const Origin& origin) {
    return graph.op(graph.declare(kind, {}, {}, {name}, {{Element::f32, std::move(dims)}}, origin)).results.front();
  };
  std::vector<ValueId> progress;  // of training: its rate, and the number of this step
  if (optimizer.kind == Optimizer::Kind::adam)
    for (const char* name : {"rate", "step"}) progress.push_back(declare(OpKind::input, name, {}, {Phase::update}));
  for (const auto& [param, local] : gradients) {
    const std::string name = graph.value(param).name;
    const std::int32_t layer = graph.op(graph.value(param).producer).origin.layer;
    ValueId gradient = local;
    if (is_replicated(graph, param) && graph.ranks > 1)
      gradient = graph.op(graph.append(OpKind::all_reduce, {local}, {}, {"sum.d." + name}, {Phase::backward, layer}))
                     .results.front();
    const Origin origin = {Phase::update, layer};
    if (optimizer.kind == Optimizer::Kind::sgd) {
      graph.append(OpKind::sgd, {param, gradient}, {{"rate", optimizer.rate}}, {name + ".new"}, origin);
      continue;
    }
    std::vector<ValueId> operands = {param, gradient};
    for (const char* moment : {".m", ".v"})
      operands.push_back(declare(OpKind::state, name + moment, graph.type(param).dims, origin));
    operands.insert(operands.end(), progress.begin(), progress.end());
    graph.append(OpKind::adam, operands, {{"beta1", 0.9}, {"beta2", 0.95}, {"eps", 1e-8}},
                 {name + ".new", name + ".m.new", name + ".v.new"}, origin);
  }
}

std::vector<bool> weight_gradients(const Graph& graph) {
  const auto is_of_tokens = [&](ValueId value) {
    const auto& dims = graph.type(value).dims;
    return std::any_of(dims.begin(), dims.end(), [&](DimId dim) {
      return graph.dims[dim].role == DimRole::batch || graph.dims[dim].role == DimRole::rows;
    });
  };
  const std::vector<std::vector<OpId>> needs = dependencies(graph);
  std::vector<bool> is_needed_early(graph.ops().size());
  std::vector<bool> result(graph.ops().size());
  for (const ValueId output : graph.outputs) is_needed_early[graph.value(output).producer.index()] = true;
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.op(OpId(i));
    const bool is_late = !is_needed_early[i];
    const bool is_update = op.origin.phase == Phase::update || op.kind == OpKind::all_reduce;
    result[i] = is_late && !is_update && op.origin.phase == Phase::backward && lane_of(op) == Lane::compute &&
                std::none_of(op.results.begin(), op.results.end(), is_of_tokens);
    const bool is_view_of_one =
        is_late && info(op.kind).is_view && std::none_of(op.results.begin(), op.results.end(), is_of_tokens);
    if (result[i] || (is_late && is_update) || is_view_of_one) continue;
    for (const OpId need : needs[i]) is_needed_early[need.index()] = true;
  }
  return result;
}

}  // namespace shunt::graph
