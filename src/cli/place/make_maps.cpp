// The main form of `shunt place`: makes maps for all layers and compares their cost with other methods.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/output.hpp"
#include "cli/place/request.hpp"
#include "cli/place/trace_tokens.hpp"
#include "core/diagnostic.hpp"
#include "core/fail.hpp"
#include "core/file.hpp"
#include "shunt/expert_map_file.hpp"
#include "shunt/pruning.hpp"

namespace shunt::cli {
namespace {

using placement::MapFigures;
using placement::Method;
using placement::RoutedTokens;

struct Pruned {
  double mass_kept = 0, share_changed = 0, c_t = 0;
  std::int64_t first_token = 0, tokens = 0;
  bool scored = false;  ///< scores of all experts were known
};

struct LayerOutcome {
  std::optional<placement::Placed> placed;
  MapFigures figures;
  std::optional<MapFigures> held_out;
  std::optional<Pruned> pruned;
};

struct MethodOutcome {
  Method method;
  std::vector<LayerOutcome> layers;
  std::string failed = {};                ///< why a layer has no map
  std::optional<double> least_load = {};  ///< lowest reachable load, if the load limit is the reason

  /// The mean over layers of one figure.
  template <class Figure>
  [[nodiscard]] double mean(const Figure& figure) const {
    double sum = 0;
    for (const LayerOutcome& layer : layers) sum += figure(layer);
    return sum / static_cast<double>(layers.size());
  }
  [[nodiscard]] MapFigures mean_figures(bool held_out) const {
    const auto of = [&](auto member) {
      return mean([&](const LayerOutcome& layer) { return (held_out ? *layer.held_out : layer.figures).*member; });
    };
    MapFigures figures;
    figures.c_t = of(&MapFigures::c_t);
    figures.c_t_node = of(&MapFigures::c_t_node);
    figures.load = of(&MapFigures::load);
    figures.estimated_ms = of(&MapFigures::estimated_ms);
    return figures;
  }
};

/// Replaces invalid UTF-8, which names of files may contain.
std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Prunes by router score. Uses held-out tokens if they have all scores, else other tokens with all scores, else tokens
/// with weights only. kept: the first held-out token.
Pruned prune_layer(const PlaceRequest& request, const RoutingTrace& trace, std::int32_t layer, std::int64_t kept,
                   const ExpertMap& map, const Topology& topology) {
  constexpr std::int64_t kMostTokens = 65'536;
  const TraceLayer tokens = trace.layer(layer);
  const std::int64_t num_scored = tokens.has_scores() ? tokens.num_scored_tokens() : 0;
  std::int64_t first = kept < tokens.num_tokens() ? kept : request.first_token;
  if (first >= num_scored && request.first_token < num_scored) first = request.first_token;
  const bool has_scores = first < num_scored;
  const auto count =
      static_cast<std::size_t>(std::min(kMostTokens, (has_scores ? num_scored : tokens.num_tokens()) - first));
  const auto topk = static_cast<std::size_t>(trace.shape().topk);
  std::vector<std::int32_t> experts(count * topk);
  std::vector<float> weights(experts.size()), scores;
  tokens.read_experts(first, experts);
  tokens.read_weights(first, weights);
  if (has_scores) {
    scores.resize(count * static_cast<std::size_t>(trace.shape().experts));
    tokens.read_scores(first, scores);
  }
  const Routing routing{experts, weights, trace.shape().topk};
  const PruneReport report = prune(routing, scores, map, topology, {.limit = request.prune}).report;
  return {report.mass_kept, report.share_changed, report.c_t_after, first, static_cast<std::int64_t>(count),
          has_scores};
}

class MapMaker {
 public:
  explicit MapMaker(const PlaceRequest& request)
      : request_(request),
        source_(request.traces),
        options_(request.options()),
        topology_(options_.topology()),
        num_layers_(source_.shape().layers) {
    if (request.prune > 0 && !source_.shape().weights)
      fail(ErrorCode::invalid_argument, "--prune: {} has no weights to prune by", request.traces.front());
    if (request.prune > 0 && request.traces.size() > 1)
      fail(ErrorCode::invalid_argument, "--prune: {} traces, expected one", request.traces.size());
    for (const Method method : placement::parse_methods(request.method))
      outcomes_.push_back({method, std::vector<LayerOutcome>(static_cast<std::size_t>(num_layers_))});
    heat_tokens_.resize(static_cast<std::size_t>(num_layers_));
  }

  void run() {
    for_layers(num_layers_, request_.progress, [&](std::int32_t layer) { place_layer(layer); });
    if (const std::string& why = outcomes_.front().failed; !why.empty()) fail(ErrorCode::invalid_argument, "{}", why);
    for (const MethodOutcome& outcome : outcomes_)
      if (!outcome.failed.empty()) print_diagnostic("{} is left out: {}\n", to_string(outcome.method), outcome.failed);
    std::erase_if(outcomes_, [](const MethodOutcome& outcome) { return !outcome.failed.empty(); });
    print();
    if (!request_.output.empty()) write_map();
    if (!request_.json.empty()) write_file(request_.json, dump(report()) + "\n");
  }

 private:
  void place_layer(std::int32_t layer) {
    const RoutedTokens all = source_.read(layer, request_.first_token, topology_.num_ranks());
    const auto kept =
        static_cast<std::size_t>(std::llround(static_cast<double>(all.num_tokens()) * (1 - request_.holdout)));
    if (kept == 0 || (request_.holdout > 0 && kept == all.num_tokens()))
      fail(ErrorCode::invalid_argument, "--holdout {}: {} of layer {} leave no tokens on one side", request_.holdout,
           plural(static_cast<std::int64_t>(all.num_tokens()), "token"), layer);
    const RoutedTokens training = request_.holdout > 0 ? all.range(0, kept) : RoutedTokens();
    const RoutedTokens& tokens = request_.holdout > 0 ? training : all;
    const RoutedTokens held_out = all.range(kept, all.num_tokens());
    for (MethodOutcome& outcome : outcomes_) {
      LayerOutcome& result = outcome.layers[static_cast<std::size_t>(layer)];
      try {
        result.placed = placement::place(outcome.method, tokens, options_);
      } catch (const placement::UnreachableLimit& error) {
        const std::lock_guard lock(mutex_);
        if (outcome.least_load && *outcome.least_load >= error.least()) continue;
        outcome.least_load = error.least();
        outcome.failed = fmt::format("layer {}: {}", layer, error.what());
        continue;
      } catch (const Error& error) {
        if (&outcome == &outcomes_.front()) fail(error.code(), "layer {}: {}", layer, error.what());
        const std::lock_guard lock(mutex_);
        outcome.failed = fmt::format("layer {}: {}", layer, error.what());
        continue;
      }
      const ExpertMap& map = result.placed->map;
      result.figures = score(tokens, map, topology_, options_.cost);
      if (request_.holdout > 0) result.held_out = score(held_out, map, topology_, options_.cost);
      if (request_.prune > 0)
        result.pruned = prune_layer(request_, source_.traces().front(), layer,
                                    request_.first_token + static_cast<std::int64_t>(kept), map, topology_);
    }
    if (!request_.json.empty()) heat_tokens_[static_cast<std::size_t>(layer)] = tokens.sample(20'000);
  }

  void write_map() const {
    PlacedLayers maps{
        .experts = source_.shape().experts,
        .nodes = request_.nodes,
        .ranks_per_node = request_.ranks_per_node,
        .layers = {},
        .origin = fmt::format("shunt place --method {} --objective {} of {}", to_string(outcomes_.front().method),
                              request_.objective, fmt::join(request_.traces, " "))};
    for (const LayerOutcome& layer : outcomes_.front().layers) maps.layers.push_back(layer.placed->map);
    write_maps(request_.output, maps);
  }

  void print() const {
    fmt::print("{} of {} experts, top-{}, on {} x {}; objective {}{}\n\n", plural(num_layers_, "layer"),
               source_.shape().experts, source_.shape().topk, plural(request_.nodes, "node"),
               plural(request_.ranks_per_node, "rank"), request_.objective,
               request_.replicas > 0 ? fmt::format(", {} copies of experts more",
                                                   options_.places(source_.shape().experts) - source_.shape().experts)
                                     : "");
    fmt::print("  {:<17}{:>8}{:>10}{:>8}{:>14}", "", "C_T", "by node", "load", "estimated ms");
    if (request_.holdout > 0)
      fmt::print("   held out:{:>8}{:>10}{:>8}{:>14}", "C_T", "by node", "load", "estimated ms");
    fmt::print("\n");
    for (const MethodOutcome& outcome : outcomes_) {
      const MapFigures figures = outcome.mean_figures(false);
      fmt::print("  {:<17}{:>8.3f}{:>10.3f}{:>8.3f}{:>14.3f}", to_string(outcome.method), figures.c_t, figures.c_t_node,
                 figures.load, figures.estimated_ms);
      if (request_.holdout > 0) {
        const MapFigures held_out = outcome.mean_figures(true);
        fmt::print("            {:>8.3f}{:>10.3f}{:>8.3f}{:>14.3f}", held_out.c_t, held_out.c_t_node, held_out.load,
                   held_out.estimated_ms);
      }
      fmt::print("\n");
    }
    if (request_.prune > 0) print_pruned();
    fmt::print(
        "\nC_T: mean number of distinct ranks per token; load: rows of the busiest rank over the mean; mean of "
        "the layers\nestimated: the busiest link's time for a dispatch and a combine of {} tokens per rank, "
        "hidden {} {}, on {}\n",
        request_.tokens_per_rank, request_.hidden, request_.dtype, request_.cluster);
  }

  void print_pruned() const {
    const auto& layers = outcomes_.front().layers;
    const auto scored =
        std::count_if(layers.begin(), layers.end(), [](const LayerOutcome& l) { return l.pruned->scored; });
    fmt::print(
        "\npruned by score to {} per token; in {} of {} all scores are known, in others dropped experts are not "
        "replaced\n  {:<17}{:>8}{:>12}{:>16}\n",
        plural(request_.prune, "rank"), scored, plural(num_layers_, "layer"), "", "C_T", "mass kept", "tokens changed");
    for (const MethodOutcome& outcome : outcomes_)
      fmt::print("  {:<17}{:>8.3f}{:>12.4f}{:>14.1f} %\n", to_string(outcome.method),
                 outcome.mean([](const LayerOutcome& layer) { return layer.pruned->c_t; }),
                 outcome.mean([](const LayerOutcome& layer) { return layer.pruned->mass_kept; }),
                 100 * outcome.mean([](const LayerOutcome& layer) { return layer.pruned->share_changed; }));
  }

  static nlohmann::ordered_json figures_json(const MapFigures& figures) {
    return {{"c_t", figures.c_t},
            {"c_t_node", figures.c_t_node},
            {"load", figures.load},
            {"estimated_ms", figures.estimated_ms}};
  }

  static nlohmann::ordered_json layer_json(const LayerOutcome& outcome, std::int32_t layer) {
    nlohmann::ordered_json json = {{"layer", layer}};
    json.update(figures_json(outcome.figures));
    if (outcome.placed->load_limit) json["load_limit"] = *outcome.placed->load_limit;
    json["rank_load"] = outcome.figures.rank_load;
    if (outcome.held_out) json["held_out"] = figures_json(*outcome.held_out);
    if (outcome.pruned)
      json["pruned"] = {{"c_t", outcome.pruned->c_t},
                        {"mass_kept", outcome.pruned->mass_kept},
                        {"share_changed", outcome.pruned->share_changed},
                        {"scored", outcome.pruned->scored},
                        {"first_token", outcome.pruned->first_token},
                        {"tokens", outcome.pruned->tokens}};
    return json;
  }

  [[nodiscard]] nlohmann::ordered_json report() const {
    nlohmann::ordered_json json = {{"shunt_report", 1},
                                   {"verb", "place"},
                                   {"trace", fmt::format("{}", fmt::join(request_.traces, " "))},
                                   {"objective", request_.objective},
                                   {"experts", source_.shape().experts},
                                   {"topk", source_.shape().topk},
                                   {"layers", num_layers_},
                                   {"nodes", request_.nodes},
                                   {"ranks_per_node", request_.ranks_per_node},
                                   {"cluster", request_.cluster},
                                   {"hidden", request_.hidden},
                                   {"dtype", request_.dtype},
                                   {"tokens_per_rank", request_.tokens_per_rank},
                                   {"replicas", request_.replicas},
                                   {"load_limit", nullptr},
                                   {"holdout", request_.holdout}};
    if (request_.load_limit) json["load_limit"] = *request_.load_limit;
    if (request_.prune > 0) json["prune"] = request_.prune;
    for (const MethodOutcome& outcome : outcomes_) {
      nlohmann::ordered_json method = {{"method", to_string(outcome.method)}};
      method.update(figures_json(outcome.mean_figures(false)));
      if (request_.holdout > 0) method["held_out"] = figures_json(outcome.mean_figures(true));
      for (std::int32_t layer = 0; layer < num_layers_; ++layer)
        method["layers"].push_back(layer_json(outcome.layers[static_cast<std::size_t>(layer)], layer));
      json["methods"].push_back(std::move(method));
    }
    json["heat"] = heat();
    return json;
  }

  /// Co-activation of the layer with the lowest C_T, for the heat map.
  [[nodiscard]] nlohmann::ordered_json heat() const {
    constexpr std::int32_t kMostExperts = 256;
    nlohmann::ordered_json pictures = nlohmann::ordered_json::array();
    if (source_.shape().experts > kMostExperts) return pictures;
    const auto& layers = outcomes_.front().layers;
    const auto least = std::min_element(layers.begin(), layers.end(), [](const LayerOutcome& a, const LayerOutcome& b) {
      return a.figures.c_t < b.figures.c_t;
    });
    const auto layer = static_cast<std::size_t>(least - layers.begin());
    const auto counts = heat_tokens_[layer].co_activation();
    const auto n = static_cast<std::size_t>(source_.shape().experts);
    std::int64_t most = 1;
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (i / n != i % n) most = std::max(most, counts[i]);
    nlohmann::ordered_json matrix = nlohmann::ordered_json::array();
    for (std::size_t a = 0; a < n; ++a) {
      nlohmann::ordered_json row = nlohmann::ordered_json::array();
      for (std::size_t b = 0; b < n; ++b) {
        const double strength = a == b ? 0 : static_cast<double>(counts[a * n + b]) / static_cast<double>(most);
        row.push_back(std::round(strength * 1000) / 1000);
      }
      matrix.push_back(std::move(row));
    }
    std::vector<std::int32_t> before(n), after, begins{0};
    std::iota(before.begin(), before.end(), 0);
    const ExpertMap& map = least->placed->map;
    for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) {
      for (std::int32_t local = 0; local < map.num_local(RankId(rank)); ++local)
        after.push_back(map.logical(PhysicalId(map.first_physical(RankId(rank)).value + local)).value);
      begins.push_back(static_cast<std::int32_t>(after.size()));
    }
    pictures.push_back({{"layer", layer},
                        {"co_activation", std::move(matrix)},
                        {"before", before},
                        {"after", after},
                        {"rank_begin", begins}});
    return pictures;
  }

  const PlaceRequest& request_;
  TokenSource source_;
  placement::PlaceOptions options_;
  Topology topology_;
  std::int32_t num_layers_;
  std::vector<MethodOutcome> outcomes_;
  std::vector<RoutedTokens> heat_tokens_;  // per layer: a sample for the heat map
  std::mutex mutex_;                       // protects reasons of failed methods
};

}  // namespace

void make_maps(const PlaceRequest& request) { MapMaker(request).run(); }

}  // namespace shunt::cli
