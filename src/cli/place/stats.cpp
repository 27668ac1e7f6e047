// `shunt place --stats`: statistics of a trace's layers, and the cost of a map.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/output.hpp"
#include "cli/place/request.hpp"
#include "cli/place/trace_tokens.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/expert_map_file.hpp"

namespace shunt::cli {
namespace {

using placement::MapFigures;
using placement::RoutedTokens;

struct LayerStats {
  std::int64_t tokens = 0;
  double skew = 0;           ///< rows of the busiest expert over the mean
  double co_activation = 0;  ///< of the strongest pairs, over that of independent experts with the same load
  MapFigures figures;
};

/// How often the strongest tenth of pairs is active together, relative to chance.
double strength(const RoutedTokens& tokens) {
  const auto counts = tokens.co_activation();
  const auto n = static_cast<std::size_t>(tokens.num_experts);
  const double total = static_cast<double>(std::max<std::size_t>(1, tokens.num_tokens()));
  std::vector<std::pair<double, double>> pairs;  // together, by chance
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = a + 1; b < n; ++b)
      pairs.emplace_back(static_cast<double>(counts[a * n + b]),
                         static_cast<double>(counts[a * n + a]) * static_cast<double>(counts[b * n + b]) / total);
  std::sort(pairs.rbegin(), pairs.rend());
  pairs.resize((pairs.size() + 9) / 10);
  double together = 0, by_chance = 0;
  for (const auto& [count, chance] : pairs) {
    together += count;
    by_chance += chance;
  }
  return by_chance > 0 ? together / by_chance : 0;
}

}  // namespace

void show_stats(const PlaceRequest& request) {
  const TokenSource source(request.traces);
  if (source.shape().experts > placement::kMostExperts)
    fail(ErrorCode::invalid_argument, "{}: {} experts, expected at most {}", request.traces.front(),
         source.shape().experts, placement::kMostExperts);
  placement::PlaceOptions options = request.options();
  std::optional<PlacedLayers> maps;
  if (!request.map_file.empty()) {
    maps = source.read_maps(request.map_file);
    options.nodes = maps->nodes;
    options.ranks_per_node = maps->ranks_per_node;
  }
  const Topology topology = options.topology();
  std::vector<LayerStats> layers(static_cast<std::size_t>(source.shape().layers));
  for_layers(source.shape().layers, request.progress, [&](std::int32_t layer) {
    const RoutedTokens tokens = source.read(layer, request.first_token, topology.num_ranks());
    LayerStats& stats = layers[static_cast<std::size_t>(layer)];
    const auto rows = tokens.rows_per_expert();
    const double mean = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})) /
                        static_cast<double>(rows.size());
    stats.tokens = static_cast<std::int64_t>(tokens.num_tokens());
    stats.skew = mean > 0 ? static_cast<double>(*std::max_element(rows.begin(), rows.end())) / mean : 1;
    stats.co_activation = strength(tokens.sample(50'000));
    const ExpertMap map = maps ? maps->layers[static_cast<std::size_t>(layer)]
                               : ExpertMap::contiguous(source.shape().experts, topology.num_ranks());
    stats.figures = score(tokens, map, topology, options.cost);
  });

  fmt::print("{} of {} experts, top-{}; {} on {} x {}\n\n", plural(source.shape().layers, "layer"),
             source.shape().experts, source.shape().topk, maps ? request.map_file : "experts in order",
             plural(options.nodes, "node"), plural(options.ranks_per_node, "rank"));
  fmt::print("  {:<7}{:>10}{:>8}{:>16}{:>8}{:>10}{:>8}{:>14}\n", "layer", "tokens", "skew", "co-activation", "C_T",
             "by node", "load", "estimated ms");
  nlohmann::ordered_json json = {
      {"shunt_report", 1}, {"verb", "place --stats"}, {"layers", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerStats& stats = layers[i];
    fmt::print("  {:<7}{:>10}{:>8.2f}{:>16.2f}{:>8.3f}{:>10.3f}{:>8.3f}{:>14.3f}\n", i, stats.tokens, stats.skew,
               stats.co_activation, stats.figures.c_t, stats.figures.c_t_node, stats.figures.load,
               stats.figures.estimated_ms);
    json["layers"].push_back({{"layer", i},
                              {"tokens", stats.tokens},
                              {"skew", stats.skew},
                              {"co_activation", stats.co_activation},
                              {"c_t", stats.figures.c_t},
                              {"c_t_node", stats.figures.c_t_node},
                              {"load", stats.figures.load},
                              {"rank_load", stats.figures.rank_load},
                              {"estimated_ms", stats.figures.estimated_ms}});
  }
  fmt::print(
      "\nskew: rows of the busiest expert over the mean; co-activation: how often the strongest tenth of pairs is "
      "active together,\nrelative to chance; load: rows of the busiest rank over the mean\n");
  if (!request.json.empty()) write_file(request.json, json.dump(1) + "\n");
}

}  // namespace shunt::cli
