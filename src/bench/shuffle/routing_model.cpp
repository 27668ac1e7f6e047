#include "bench/shuffle/routing_model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <vector>

#include "core/fail.hpp"

namespace shunt::bench {
namespace {

/// Draws experts without replacement, in proportion to their weights.
void draw_weighted(std::mt19937_64& random, std::span<const double> weights, std::span<std::int32_t> experts) {
  // Efraimidis and Spirakis: the experts with the k largest log(u) / weight are such a draw.
  std::uniform_real_distribution<double> uniform(1e-300, 1.0);
  std::vector<std::pair<double, std::int32_t>> keys;
  keys.reserve(weights.size());
  for (std::size_t expert = 0; expert < weights.size(); ++expert)
    if (weights[expert] > 0)
      keys.emplace_back(std::log(uniform(random)) / weights[expert], static_cast<std::int32_t>(expert));
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(experts.size()), keys.end(),
                    std::greater<>());
  for (std::size_t i = 0; i < experts.size(); ++i) experts[i] = keys[i].second;
}

/// Uses the same weights for all tokens.
class Weighted final : public RoutingModel {
 public:
  explicit Weighted(std::vector<double> weights) : weights_(std::move(weights)) {}
  void draw(std::mt19937_64& random, std::int64_t, std::int64_t, std::span<std::int32_t> experts) const override {
    draw_weighted(random, weights_, experts);
  }

 private:
  std::vector<double> weights_;
};

/// Draws a group per token, then experts with that group's weights.
class Grouped final : public RoutingModel {
 public:
  using Weight = std::function<double(std::size_t group, std::size_t expert)>;

  Grouped(std::size_t num_groups, std::size_t num_experts, Weight weight)
      : num_groups_(num_groups), num_experts_(num_experts), weight_(std::move(weight)) {}
  void draw(std::mt19937_64& random, std::int64_t, std::int64_t, std::span<std::int32_t> experts) const override {
    const std::size_t group = random() % num_groups_;
    std::vector<double> weights;
    weights.reserve(num_experts_);
    for (std::size_t expert = 0; expert < num_experts_; ++expert) weights.push_back(weight_(group, expert));
    draw_weighted(random, weights, experts);
  }

 private:
  std::size_t num_groups_;
  std::size_t num_experts_;
  Weight weight_;
};

template <class Number>
Number number_after_colon(const std::string& name, Number least, Number most, const char* kind) {
  const std::size_t begin = name.find(':') + 1;
  Number value = 0;
  const auto [end, error] = std::from_chars(name.data() + begin, name.data() + name.size(), value);
  if (error != std::errc{} || end != name.data() + name.size() || !(value >= least && value <= most))
    fail(ErrorCode::invalid_argument, "--routing {}: expected a {} from {} to {} after the colon", name, kind, least,
         most);
  return value;
}

// Larger exponents would make weights underflow.
constexpr double kSteepestZipf = 10;

std::vector<double> zipf(std::size_t num_experts, double exponent) {
  std::vector<double> weights;
  for (std::size_t expert = 0; expert < num_experts; ++expert)
    weights.push_back(std::pow(static_cast<double>(expert + 1), -exponent));
  return weights;
}

/// All experts of a token have a copy on one node, drawn uniformly.
std::unique_ptr<RoutingModel> node_local(const ExpertMap& map, const Topology& topology, std::int32_t topk) {
  std::vector<std::set<std::size_t>> of_node(static_cast<std::size_t>(topology.num_nodes()));
  for (std::int32_t copy = 0; copy < map.num_physical(); ++copy)
    of_node[topology.node(map.rank(PhysicalId(copy))).index()].insert(map.logical(PhysicalId(copy)).index());
  for (const auto& experts : of_node)
    if (experts.size() < static_cast<std::size_t>(topk))
      fail(ErrorCode::invalid_argument, "--routing node-local: a node holds {} experts, fewer than --topk {}",
           experts.size(), topk);
  const std::size_t num_nodes = of_node.size();
  return std::make_unique<Grouped>(num_nodes, static_cast<std::size_t>(map.num_experts()),
                                   [of_node = std::move(of_node)](std::size_t node, std::size_t expert) {
                                     return of_node[node].contains(expert) ? 1.0 : 0.0;
                                   });
}

/// Experts on half of the ranks have three times the weight of the others; an expert with copies on both has the mean.
std::vector<double> bimodal(const ExpertMap& map) {
  std::vector<double> weights;
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    const auto copies = map.copies(ExpertId(expert));
    double sum = 0;
    for (const PhysicalId copy : copies) sum += map.rank(copy).value % 2 == 0 ? 3 : 1;
    weights.push_back(sum / static_cast<double>(copies.size()));
  }
  return weights;
}

/// Uniform, but all ranks except the first of each node drop most of their tokens.
class HotRanks final : public RoutingModel {
 public:
  HotRanks(const Topology& topology, std::size_t num_experts, double factor)
      : topology_(topology), weights_(num_experts, 1.0), kept_(1 / factor) {}
  void draw(std::mt19937_64& random, std::int64_t rank, std::int64_t, std::span<std::int32_t> experts) const override {
    const RankId source(static_cast<std::int32_t>(rank));
    const bool is_hot = topology_.ranks(topology_.node(source)).front() == source;
    if (is_hot || std::uniform_real_distribution<double>()(random) < kept_)
      draw_weighted(random, weights_, experts);
    else
      std::fill(experts.begin(), experts.end(), -1);
  }

 private:
  Topology topology_;
  std::vector<double> weights_;
  double kept_;
};

/// Experts in groups; nine of ten experts of a token are from the same group.
std::unique_ptr<RoutingModel> clustered(std::size_t num_experts, std::size_t num_groups) {
  const double within = num_groups > 1 ? 9.0 * static_cast<double>(num_groups - 1) : 1.0;
  return std::make_unique<Grouped>(num_groups, num_experts, [=](std::size_t group, std::size_t expert) {
    return expert % num_groups == group ? within : 1.0;
  });
}

std::unique_ptr<RoutingModel> make_model(const ShuffleConfig& config) {
  const std::string& name = config.routing;
  const auto num_experts = static_cast<std::size_t>(config.experts);
  if (name == "uniform") return std::make_unique<Weighted>(std::vector<double>(num_experts, 1.0));
  if (name == "bimodal") return std::make_unique<Weighted>(bimodal(config.map()));
  if (name == "node-local") return node_local(config.map(), config.topology(), config.topk);
  if (name.starts_with("zipf:"))
    return std::make_unique<Weighted>(zipf(num_experts, number_after_colon(name, 0.0, kSteepestZipf, "number")));
  if (name.starts_with("clustered:"))
    return clustered(num_experts, number_after_colon(name, std::size_t{1}, num_experts, "whole number of groups"));
  if (name.starts_with("hot-ranks:"))
    return std::make_unique<HotRanks>(config.topology(), num_experts, number_after_colon(name, 1.0, 1000.0, "number"));
  if (name.starts_with("trace:")) return read_trace(name.substr(6), config);
  fail(ErrorCode::invalid_argument,
       "--routing {}: expected uniform, zipf:A, node-local, bimodal, hot-ranks:F, clustered:G or trace:FILE", name);
}

}  // namespace

std::unique_ptr<RoutingModel> make_routing_model(const ShuffleConfig& config) {
  auto model = make_model(config);
  if (config.prune.by == "similarity" && !model->has_scores())
    fail(ErrorCode::invalid_argument,
         "--prune-by similarity: --routing {} has no scores of layer {} to compare experts by", config.routing,
         config.layer);
  return model;
}

}  // namespace shunt::bench
