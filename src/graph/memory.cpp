#include <algorithm>

#include "graph/simulate.hpp"

namespace shunt::graph {
namespace {

struct Change {
  double at_s;
  std::int64_t bytes;  // at equal times, negative values sort first

  bool operator<(const Change& other) const { return std::pair(at_s, bytes) < std::pair(other.at_s, other.bytes); }
};

}  // namespace

Memory memory_of(const Graph& graph, const Program& program, const Timeline& timeline) {
  std::vector<Timeline::Span> span_of(graph.ops().size());
  for (TaskId task = 0; task < program.tasks.size(); ++task)
    span_of[program.tasks[task].op.index()] = timeline.spans[task];

  // Lifetimes, from the last op back: the base of a view lives as long as the view.
  std::vector<double> dies_at(graph.values().size(), 0);
  for (const ValueId output : graph.outputs) dies_at[output.index()] = timeline.step_s;
  for (std::size_t i = graph.ops().size(); i-- > 0;) {
    const Op& op = graph.op(OpId(i));
    double needed_until = span_of[i].end_s;
    if (info(op.kind).is_view)
      for (const ValueId result : op.results) needed_until = std::max(needed_until, dies_at[result.index()]);
    for (const ValueId operand : op.operands)
      dies_at[operand.index()] = std::max(dies_at[operand.index()], needed_until);
  }

  Memory memory;
  std::vector<Change> changes;
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    if (info(op.kind).is_view) continue;
    for (const ValueId result : op.results) {
      if (lane_of(op) == Lane::none) {
        memory.fixed_bytes += graph.bytes(result);
        continue;
      }
      changes.push_back({span_of[i].begin_s, graph.bytes(result)});
      changes.push_back({std::max(dies_at[result.index()], span_of[i].end_s), -graph.bytes(result)});
    }
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t live = 0;
  for (const Change& change : changes) {
    live += change.bytes;
    memory.peak_bytes = std::max(memory.peak_bytes, live);
  }
  return memory;
}

}  // namespace shunt::graph
