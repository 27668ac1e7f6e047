#include "graph/passes/tutel.hpp"

#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <tuple>

#include "graph/passes/blocks.hpp"
#include "graph/program.hpp"
#include "graph/split.hpp"

namespace shunt::graph {
namespace {

constexpr std::int32_t kDegrees[] = {1, 2, 4, 8};
constexpr double kForever = std::numeric_limits<double>::infinity();

/// Splits the ops that touch rows.
std::vector<std::int32_t> parts_by_layer(const Graph& graph, const Blocks& blocks, std::int32_t degree) {
  const DimId batch = batch_of(graph);
  std::vector<std::int32_t> parts(graph.ops().size(), 1);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (blocks.plan_of_op[i] >= 0 && is_cut_by_batch(graph, graph.op(OpId(i)), batch)) parts[i] = degree;
  return parts;
}

/// Inside a layer's shuffle: first the ops that start it for all parts, then the rest part by part.
Graph pipelined(const Graph& graph, const Blocks& blocks, std::int32_t degree) {
  const std::vector<std::int32_t> parts = parts_by_layer(graph, blocks, degree);
  const SplitGraph split = graph::split(graph, parts);
  std::map<std::pair<std::int32_t, Phase>, std::int64_t> region;  // position of a layer's first split op
  std::map<std::pair<std::int32_t, Phase>, bool> has_computed;
  std::map<OpId, int> stage;  // by source op: 0 leading communication, 2 the rest of the shuffle
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    if (parts[i] <= 1) continue;
    const Op& op = graph.op(OpId(i));
    const std::pair key(op.origin.layer, op.origin.phase);
    region.try_emplace(key, static_cast<std::int64_t>(i));
    if (lane_of(op) == Lane::compute) has_computed[key] = true;
    stage[OpId(i)] = has_computed[key] ? 2 : 0;
  }
  using Key = std::tuple<std::int64_t, int, std::int32_t, std::int64_t, std::int32_t>;
  const auto key_of = [&](std::size_t op) -> Key {
    const OpId source = split.source[op];
    const Origin& origin = graph.op(source).origin;
    const auto found = region.find({origin.layer, origin.phase});
    const auto number = static_cast<std::int32_t>(op);
    if (parts[source.index()] > 1) return {found->second, stage.at(source), split.part[op], source.value, number};
    return {source.value, 0, 0, source.value, number};
  };
  const std::vector<std::vector<OpId>> needs = dependencies(split.graph);
  std::vector<std::size_t> missing(needs.size());
  std::vector<std::vector<OpId>> users(needs.size());
  std::priority_queue<Key, std::vector<Key>, std::greater<>> ready;
  for (std::size_t op = 0; op < needs.size(); ++op) {
    missing[op] = needs[op].size();
    for (const OpId need : needs[op]) users[need.index()].emplace_back(op);
    if (missing[op] == 0) ready.push(key_of(op));
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    order.emplace_back(std::get<4>(ready.top()));
    ready.pop();
    for (const OpId user : users[order.back().index()])
      if (--missing[user.index()] == 0) ready.push(key_of(user.index()));
  }
  return split.graph.reordered(order);
}

double forward_end_s(const Tutel& candidate, const CostModel& cost) {
  const Program program = make_program(candidate.graph, cost);
  double end_s = 0;
  for (TaskId task = 0; task < program.tasks.size(); ++task)
    if (candidate.graph.op(program.tasks[task].op).origin.phase == Phase::forward)
      end_s = std::max(end_s, candidate.outcome.timeline.spans[task].end_s);
  return end_s;
}

}  // namespace

Tutel tutel(const Graph& graph, const CostModel& cost) {
  const Blocks blocks = find_blocks(graph);
  const std::int64_t most = most_parts(graph);
  std::optional<Tutel> best;
  double forward_s = kForever, rest_s = kForever;
  for (const std::int32_t degree : kDegrees) {
    if (degree > most) continue;
    Tutel candidate{degree == 1 ? graph : pipelined(graph, blocks, degree), degree, {}, 0};
    candidate.outcome = evaluate(candidate.graph, cost);
    const double step_s = candidate.outcome.timeline.step_s, end_s = forward_end_s(candidate, cost);
    forward_s = std::min(forward_s, end_s);
    rest_s = std::min(rest_s, step_s - end_s);
    if (!best || step_s < best->outcome.timeline.step_s) best = std::move(candidate);
  }
  best->apart_s = forward_s + rest_s;
  return std::move(*best);
}

}  // namespace shunt::graph
