#include "runtime/scheduled_step.hpp"

#include "core/fail.hpp"
#include "graph/passes/lancet.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/schedule.hpp"
#include "graph/text.hpp"

namespace shunt::runtime {
namespace {

using graph::CostModel;
using graph::Graph;
using graph::Model;

struct Schedule {
  std::string_view name;
  Graph (*make)(const Model& model, const Graph& step, const CostModel& cost);
};

constexpr Schedule kSchedules[] = {
    {"plain", [](const Model&, const Graph& step, const CostModel&) { return step; }},
    {"tutel", [](const Model&, const Graph& step, const CostModel& cost) { return graph::tutel(step, cost).graph; }},
    {"lancet", [](const Model&, const Graph& step, const CostModel& cost) { return graph::lancet(step, cost); }},
    {"shunt", [](const Model& model, const Graph&,
                 const CostModel& cost) { return graph::make_schedule(model, cost, {}).graph; }},
};

const Schedule& find_schedule(std::string_view name) {
  for (const Schedule& each : kSchedules)
    if (each.name == name) return each;
  fail(ErrorCode::invalid_argument, "no schedule '{}'; there are {}", name, fmt::join(schedule_names(), ", "));
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Schedule& each : kSchedules) names.emplace_back(each.name);
  return names;
}

ScheduledStep make_scheduled_step(World& world, const Model& model, std::string_view schedule, const Profile& profile) {
  const Schedule& chosen = find_schedule(schedule);
  const CostModel cost(profile.cluster, {.table = &profile.table});
  std::string text;
  if (world.rank().value == 0)
    text = graph::print(chosen.make(model, graph::build_training_step(model, world.size()), cost));
  const auto texts = world.all_gather(std::as_bytes(std::span(text)));
  ScheduledStep made{graph::parse({reinterpret_cast<const char*>(texts[0].data()), texts[0].size()}, "rank 0's step")};
  const graph::Program program = graph::make_program(made.graph, cost);
  const graph::Timeline timeline = graph::simulate(program, cost.cluster());
  made.predicted_s = timeline.step_s;
  made.predicted.resize(made.graph.ops().size());
  for (graph::TaskId task = 0; task < program.tasks.size(); ++task)
    made.predicted[program.tasks[task].op.index()] = timeline.spans[task];
  return made;
}

}  // namespace shunt::runtime
