#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "graph/simulate.hpp"

namespace shunt::graph {

std::string chrome_trace(const Graph& graph, const Program& program, const Timeline& timeline) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const auto& [thread, name] : {std::pair(0, "compute"), std::pair(1, "comm")})
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", thread}, {"args", {{"name", name}}}});
  for (TaskId i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    const Op& op = graph.op(task.op);
    const std::string name = op.results.empty() ? std::string(info(op.kind).name) : graph.value(op.results[0]).name;
    events.push_back({{"name", name},
                      {"cat", info(op.kind).name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", task.lane == Lane::comm ? 1 : 0},
                      {"ts", timeline.spans[i].begin_s * kMicroseconds},
                      {"dur", (timeline.spans[i].end_s - timeline.spans[i].begin_s) * kMicroseconds},
                      {"args", {{"layer", op.origin.layer}, {"phase", to_string(op.origin.phase)}}}});
  }
  return nlohmann::ordered_json({{"traceEvents", events}}).dump(0) + "\n";
}

}  // namespace shunt::graph
