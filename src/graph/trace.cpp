#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/simulate.hpp"

namespace shunt::graph {
namespace {

/// By task: track 0 for compute, and tracks from 1 on for transfers, so that concurrent ones have different tracks.
std::vector<std::size_t> tracks_of(const Program& program, const Timeline& timeline) {
  std::vector<std::size_t> tracks(program.tasks.size());
  std::vector<double> free_from_s;
  for (TaskId task = 0; task < program.tasks.size(); ++task) {
    if (program.tasks[task].lane != Lane::comm) continue;
    const Timeline::Span& span = timeline.spans[task];
    const auto free =
        std::find_if(free_from_s.begin(), free_from_s.end(), [&](double at) { return at <= span.begin_s; });
    tracks[task] = static_cast<std::size_t>(free - free_from_s.begin()) + 1;
    if (free == free_from_s.end())
      free_from_s.push_back(span.end_s);
    else
      *free = span.end_s;
  }
  return tracks;
}

}  // namespace

std::string chrome_trace(const Graph& graph, const Program& program, const Timeline& timeline) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const std::vector<std::size_t> tracks = tracks_of(program, timeline);
  const std::size_t last = tracks.empty() ? 0 : *std::max_element(tracks.begin(), tracks.end());
  for (std::size_t track = 0; track <= last; ++track) {
    const std::string name = track == 0 ? "compute" : fmt::format("comm {}", track);
    events.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", track}, {"args", {{"name", name}}}});
  }
  for (TaskId i = 0; i < program.tasks.size(); ++i) {
    const Task& task = program.tasks[i];
    const Op& op = graph.op(task.op);
    const std::string name = op.results.empty() ? std::string(info(op.kind).name) : graph.value(op.results[0]).name;
    events.push_back({{"name", name},
                      {"cat", info(op.kind).name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", tracks[i]},
                      {"ts", timeline.spans[i].begin_s * kMicroseconds},
                      {"dur", (timeline.spans[i].end_s - timeline.spans[i].begin_s) * kMicroseconds},
                      {"args", {{"layer", op.origin.layer}, {"phase", to_string(op.origin.phase)}}}});
  }
  return nlohmann::ordered_json({{"traceEvents", events}}).dump(0) + "\n";
}

}  // namespace shunt::graph
