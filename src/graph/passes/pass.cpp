#include "graph/passes/pass.hpp"

#include <chrono>

#include "core/fail.hpp"
#include "graph/passes/passes.hpp"
#include "graph/verify.hpp"

namespace shunt::graph {
namespace {

// Lancet's order reversed: pipelines first, then weight gradients and reductions into the gaps that they leave.
constexpr Pass kPasses[] = {
    {"partition", "cut ranges of layers along the batch and pipeline their parts", partition},
    {"interleave", "or run one micro-batch's backward against the other's forward, where the model asks for it",
     interleave},
    {"dw", "move weight gradients behind communication that nothing else hides", schedule_weight_gradients},
    {"all_reduce", "move reductions of gradients into gaps between all-to-alls", place_reductions},
};

bool obeys(const Outcome& outcome, std::int64_t cap) { return cap == 0 || outcome.memory.peak_bytes <= cap; }

bool is_no_worse(const Outcome& now, const Outcome& before, std::int64_t cap) {
  if (obeys(now, cap) != obeys(before, cap)) return obeys(now, cap);
  if (now.timeline.step_s != before.timeline.step_s) return now.timeline.step_s < before.timeline.step_s;
  return now.memory.peak_bytes <= before.memory.peak_bytes;
}

}  // namespace

std::span<const Pass> all_passes() { return kPasses; }

Outcome evaluate(const Graph& graph, const CostModel& cost) {
  return evaluate(graph, make_program(graph, cost), cost.cluster());
}

Outcome evaluate(const Graph& graph, const Program& program, const Cluster& cluster) {
  Outcome outcome;
  outcome.timeline = simulate(program, cluster);
  outcome.memory = memory_of(graph, program, outcome.timeline);
  outcome.least_step_s = least_step_s(program);
  for (const TaskId id : outcome.timeline.critical_path) {
    const Task& task = program.tasks[id];
    double& share = task.lane == Lane::compute ? outcome.critical_compute_s
                    : task.is_all_to_all       ? outcome.critical_all_to_all_s
                                               : outcome.critical_all_reduce_s;
    share += outcome.timeline.spans[id].end_s - outcome.timeline.spans[id].begin_s;
  }
  return outcome;
}

Graph run_passes(Graph graph, PassContext& context, const std::function<bool(std::string_view)>& is_on,
                 std::vector<PassReport>& reports) {
  using Clock = std::chrono::steady_clock;
  const Graph step = graph;
  context.step = &step;
  Outcome current = evaluate(graph, context.cost);
  for (const Pass& pass : kPasses) {
    if (!is_on(pass.name)) continue;
    const auto start = Clock::now();
    const std::size_t notes_before = context.notes.size();
    Graph changed = pass.apply(graph, context);
    verify(changed);
    const Outcome outcome = evaluate(changed, context.cost);
    PassReport report{pass.name, 0, current.timeline.step_s, outcome.timeline.step_s,
                      is_no_worse(outcome, current, context.memory_cap_bytes)};
    if (pass.name == "dw") context.is_dw_used = report.is_kept;
    if (report.is_kept) {
      graph = std::move(changed);
      current = outcome;
    } else {
      context.notes.resize(notes_before);
    }
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    reports.push_back(report);
  }
  if (!obeys(current, context.memory_cap_bytes))
    fail(ErrorCode::invalid_argument,
         "no schedule was found that needs less than {} bytes for activations and buffers; {} allowed",
         current.memory.peak_bytes, context.memory_cap_bytes);
  return graph;
}

}  // namespace shunt::graph
