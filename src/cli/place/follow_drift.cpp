// `shunt place --from MAP --window N`: follows a trace window by window and moves experts if it pays off.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "cli/place/request.hpp"
#include "cli/place/trace_tokens.hpp"
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
  PlacedLayers maps = source.read_maps(request.map_file);
  PlaceRequest here = request;
  here.nodes = maps.nodes;
  here.ranks_per_node = maps.ranks_per_node;
  const placement::DriftOptions options = drift_options(here);
  const std::int32_t num_layers = source.shape().layers;
  std::int64_t num_tokens = source.num_tokens(0);
  for (std::int32_t layer = 1; layer < num_layers; ++layer) num_tokens = std::min(num_tokens, source.num_tokens(layer));
  const std::int64_t num_windows = (num_tokens - request.first_token) / request.window;
  if (num_windows < 1)
    fail(ErrorCode::invalid_argument, "--window {}: a layer has {} from --first-token on", request.window,
         plural(std::max<std::int64_t>(0, num_tokens - request.first_token), "token"));

  std::vector<std::vector<DriftStep>> steps;  // [windows, layers]
  std::vector<placement::DriftChoices> choices(maps.layers.size(), {{maps.layers.front()}});
  for (std::int64_t window = 0; window < num_windows; ++window) {
    for_layers(num_layers, request.progress, [&](std::int32_t layer) {
      const auto i = static_cast<std::size_t>(layer);
      const std::int64_t first = request.first_token + window * request.window;
      choices[i] = drift_choices(source.read(layer, first, maps.ranks(), request.window), maps.layers[i], options);
    });
    steps.push_back(choose(choices, options));
    for (std::size_t layer = 0; layer < maps.layers.size(); ++layer) maps.layers[layer] = steps.back()[layer].map;
  }

  nlohmann::ordered_json json = {
      {"shunt_report", 1}, {"verb", "place --from"}, {"steps", nlohmann::ordered_json::array()}};
  fmt::print("  {:<7}{:>7}{:>7}{:>11}{:>11}{:>11}{:>14}{:>13}\n", "window", "layer", "moves", "stale ms", "after ms",
             "fresh ms", "fresh moves", "moving ms");
  for (std::size_t window = 0; window < steps.size(); ++window)
    for (std::size_t layer = 0; layer < steps[window].size(); ++layer) {
      const DriftStep& step = steps[window][layer];
      json["steps"].push_back(json_of(step, static_cast<std::int32_t>(layer), window));
      fmt::print("  {:<7}{:>7}{:>7}{:>11.3f}{:>11.3f}{:>11.3f}{:>14}{:>13.2f}\n", window, layer, step.moves.size(),
                 step.stale_ms, step.after_ms, step.fresh_ms, step.fresh_moves, step.moving_ms);
    }
  fmt::print(
      "\nstale, after: estimated time of a shuffle with the map before and after the window's moves, on tokens that "
      "were not used to choose them;\nfresh: with a new placement whose ranks are renamed for fewest moves\n");
  if (!request.output.empty()) {
    maps.origin = fmt::format("shunt place --from {} --window {}", request.map_file, request.window);
    write_maps(request.output, maps);
  }
  if (!request.json.empty()) write_file(request.json, json.dump(1) + "\n");
}

}  // namespace shunt::cli
