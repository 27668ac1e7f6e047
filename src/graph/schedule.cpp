#include "graph/schedule.hpp"

#include <algorithm>
#include <chrono>
#include <map>

#include "core/fail.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/verify.hpp"

namespace shunt::graph {
namespace {

void check_passes(const std::set<std::string>& wanted) {
  std::vector<std::string_view> names;
  for (const Pass& pass : all_passes()) names.push_back(pass.name);
  for (const std::string& name : wanted)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail(ErrorCode::invalid_argument, "no pass '{}'; there are {}", name, fmt::join(names, ", "));
}

void find_shares(const Graph& step, const CostModel& cost, Schedule& schedule) {
  double compute = 0, all_to_all = 0;
  for (const Task& task : make_program(step, cost).tasks) {
    compute += task.cost.compute_s;
    if (task.is_all_to_all) all_to_all += task.cost.comm.alone_s();
  }
  schedule.plain_share = all_to_all / (compute + all_to_all);
  schedule.step_share = all_to_all / schedule.before.timeline.step_s;
}

void add_exposed(const Graph& graph, const CostModel& cost, const Timeline& timeline, bool is_after,
                 std::map<std::int32_t, LayerReport>& layers) {
  const Program program = make_program(graph, cost);
  for (TaskId task = 0; task < program.tasks.size(); ++task) {
    if (!program.tasks[task].is_all_to_all) continue;
    const Origin& origin = graph.op(program.tasks[task].op).origin;
    LayerReport& layer = layers[origin.layer];
    double& exposed = origin.phase == Phase::forward ? (is_after ? layer.forward_after_s : layer.forward_before_s)
                                                     : (is_after ? layer.backward_after_s : layer.backward_before_s);
    exposed += timeline.exposed_by[task];
  }
}

std::vector<LayerReport> report_layers(const Graph& step, const Schedule& schedule, const std::vector<LayerNote>& notes,
                                       const CostModel& cost) {
  std::map<std::int32_t, LayerReport> layers;
  add_exposed(step, cost, schedule.before.timeline, false, layers);
  add_exposed(schedule.graph, cost, schedule.after.timeline, true, layers);
  for (const LayerNote& note : notes) {
    std::string& what = layers[note.layer].what;
    what += (what.empty() ? "" : "; ") + note.what;
  }
  std::vector<LayerReport> reports;
  for (auto& [number, layer] : layers) {
    layer.layer = number;
    if (layer.what.empty()) layer.what = "left as it is";
    reports.push_back(std::move(layer));
  }
  return reports;
}

}  // namespace

Schedule make_schedule(const Model& model, const CostModel& cost, const ScheduleOptions& options) {
  using Clock = std::chrono::steady_clock;
  check_passes(options.passes);
  const auto start = Clock::now();
  const Graph step = build_training_step(model, cost.cluster().ranks());
  verify(step);
  PassContext context{.cost = cost,
                      .memory_cap_bytes = options.memory_cap_bytes,
                      .interleaves_micro_batches = model.interleaves_micro_batches,
                      .dw_seconds = options.dw_seconds,
                      .notes = {}};
  std::vector<PassReport> reports;
  const auto is_on = [&](std::string_view name) {
    return options.passes.empty() || options.passes.contains(std::string(name));
  };
  Schedule schedule{.graph = run_passes(step, context, is_on, reports),
                    .before = {},
                    .tutel = {},
                    .after = {},
                    .passes = std::move(reports),
                    .layers = {},
                    .is_dw_used = context.is_dw_used,
                    .dw_gap = context.dw_gap,
                    .dw_gained = context.dw_gained};
  schedule.plan_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  schedule.before = evaluate(step, cost);
  const Tutel baseline = tutel(step, cost);
  schedule.tutel = baseline.outcome;
  schedule.tutel_parts = baseline.parts;
  schedule.tutel_apart_s = baseline.apart_s;
  schedule.after = evaluate(schedule.graph, cost);
  find_shares(step, cost, schedule);
  schedule.layers = report_layers(step, schedule, context.notes, cost);
  return schedule;
}

void check_same_schedule(std::span<const std::uint64_t> hashes) {
  for (std::size_t rank = 1; rank < hashes.size(); ++rank)
    if (hashes[rank] != hashes[0])
      fail(ErrorCode::mismatch, "rank {} has schedule {:016x}, rank 0 has {:016x}: model, cluster or version differ",
           rank, hashes[rank], hashes[0]);
}

}  // namespace shunt::graph
