// `shunt place --from MAP --window N`: follows a trace window by window and moves experts where it pays.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/place/request.hpp"
#include "cli/place/trace_tokens.hpp"
#include "cli/plural.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "placement/drift.hpp"
#include "shunt/expert_map_file.hpp"

namespace shunt::cli {
namespace {

using placement::DriftStep;
using placement::RoutedTokens;

placement::DriftOptions drift_options(const PlaceRequest& request) {
  const Cluster cluster = request.load_cluster();
  placement::DriftOptions options;
  options.place = request.options();
  options.expert_bytes = request.expert_mb * 1e6;
  options.near_bytes_per_s = cluster.near_bytes_per_s;
  options.far_bytes_per_s = cluster.far_bytes_per_s;
  options.horizon_steps = request.horizon;
  return options;
}

nlohmann::ordered_json json_of(const DriftStep& step, std::int32_t layer, std::size_t window) {
  nlohmann::ordered_json moves = nlohmann::ordered_json::array();
  for (const placement::Move& move : step.moves)
    moves.push_back({{"expert", move.expert.value}, {"from", move.from.value}, {"to", move.to.value}});
  return {{"layer", layer},
          {"window", window},
          {"stale_ms", step.stale_ms},
          {"after_ms", step.after_ms},
          {"fresh_ms", step.fresh_ms},
          {"fresh_moves", step.fresh_moves},
          {"moving_ms", step.moving_ms},
          {"moves", std::move(moves)}};
}

}  // namespace

void follow_drift(const PlaceRequest& request) {
  const TokenSource source(request.traces);
  PlacedLayers maps = read_maps(request.map_file);
  PlaceRequest here = request;
  here.nodes = maps.nodes;
  here.ranks_per_node = maps.ranks_per_node;
  if (maps.experts != source.shape().experts || std::ssize(maps.layers) != source.shape().layers)
    fail(ErrorCode::invalid_argument, "--from {}: {} layers of {} experts, but the trace has {} of {}",
         request.map_file, maps.layers.size(), maps.experts, source.shape().layers, source.shape().experts);
  const placement::DriftOptions options = drift_options(here);
  std::vector<std::vector<DriftStep>> steps(maps.layers.size());
  for_layers(source.shape().layers, request.progress, [&](std::int32_t layer) {
    const RoutedTokens tokens = source.read(layer, request.first_token, maps.ranks());
    const auto window = static_cast<std::size_t>(request.window);
    if (tokens.num_tokens() < window)
      fail(ErrorCode::invalid_argument, "--window {}: layer {} has {} only", request.window, layer,
           plural(static_cast<std::int64_t>(tokens.num_tokens()), "token"));
    const auto i = static_cast<std::size_t>(layer);
    for (std::size_t begin = 0; begin + window <= tokens.num_tokens(); begin += window) {
      steps[i].push_back(follow(tokens.range(begin, begin + window), maps.layers[i], options));
      maps.layers[i] = steps[i].back().map;
    }
  });

  nlohmann::ordered_json json = {
      {"shunt_report", 1}, {"verb", "place --from"}, {"steps", nlohmann::ordered_json::array()}};
  fmt::print("  {:<7}{:>7}{:>7}{:>11}{:>11}{:>11}{:>14}{:>13}\n", "layer", "window", "moves", "stale ms", "after ms",
             "fresh ms", "fresh moves", "moving ms");
  for (std::size_t layer = 0; layer < steps.size(); ++layer)
    for (std::size_t window = 0; window < steps[layer].size(); ++window) {
      const DriftStep& step = steps[layer][window];
      json["steps"].push_back(json_of(step, static_cast<std::int32_t>(layer), window));
      fmt::print("  {:<7}{:>7}{:>7}{:>11.3f}{:>11.3f}{:>11.3f}{:>14}{:>13.2f}\n", layer, window, step.moves.size(),
                 step.stale_ms, step.after_ms, step.fresh_ms, step.fresh_moves, step.moving_ms);
    }
  fmt::print(
      "\nstale, after: estimated time of a shuffle with the map before and after the window's moves, on tokens that "
      "did not decide them;\nfresh: with experts placed anew and ranks renamed for fewest moves\n");
  if (!request.output.empty()) {
    maps.origin = fmt::format("shunt place --from {} --window {}", request.map_file, request.window);
    write_maps(request.output, maps);
  }
  if (!request.json.empty()) write_file(request.json, json.dump(1) + "\n");
}

}  // namespace shunt::cli
