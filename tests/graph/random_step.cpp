#include "graph/autodiff.hpp"
#include "graph/program.hpp"
#include "graph/random_graph.hpp"

namespace shunt::graph::test {
namespace {

/// Ops that clip gradients are between the all-reduce and the update.
std::vector<std::pair<ValueId, ValueId>> updated_by_hand(Graph& graph,
                                                         std::vector<std::pair<ValueId, ValueId>> gradients) {
  const Origin origin = {Phase::backward, -1};
  const auto [param, local] = gradients.back();
  gradients.pop_back();
  const auto append = [&](OpKind kind, std::vector<ValueId> operands, Attributes attributes, const Origin& where) {
    return graph.op(graph.append(kind, std::move(operands), std::move(attributes), {"clipped"}, where)).results.front();
  };
  const ValueId sum = append(OpKind::all_reduce, {local}, {}, origin);
  const ValueId clipped = append(OpKind::scale, {sum}, {{"by", 0.25}}, origin);
  append(OpKind::sgd, {param, clipped}, {{"rate", 0.1}}, {Phase::update, -1});
  graph.outputs.push_back(clipped);
  return gradients;
}

}  // namespace

RandomStep random_step(std::uint64_t seed) {
  const Graph forward = random_forward(seed);
  RandomStep made{forward, forward, {}, forward};
  made.gradients = append_backward(made.backward, made.backward.outputs.front());
  made.step = made.backward;
  const Optimizer optimizer{seed % 2 == 0 ? Optimizer::Kind::sgd : Optimizer::Kind::adam};
  append_updates(made.step, seed % 3 == 0 ? updated_by_hand(made.step, made.gradients) : made.gradients, optimizer);
  made.step = in_program_order(made.step);
  return made;
}

}  // namespace shunt::graph::test
