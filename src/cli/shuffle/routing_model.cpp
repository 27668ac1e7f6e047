#include "cli/shuffle/routing_model.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <vector>

#include "cli/shuffle/trace.hpp"
#include "core/fail.hpp"

namespace shunt::cli {
namespace {

/// Draws without replacement, each expert with a chance in proportion to its weight.
void draw_weighted(std::mt19937_64& random, std::span<const double> weights, std::span<std::int32_t> experts) {
  // Efraimidis and Spirakis: the k largest of log(u) / weight are such a draw.
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

/// The same weights for all tokens.
class Weighted final : public RoutingModel {
 public:
  explicit Weighted(std::vector<double> weights) : weights_(std::move(weights)) {}
  void draw(std::mt19937_64& random, std::int64_t, std::int64_t, std::span<std::int32_t> experts) const override {
    draw_weighted(random, weights_, experts);
  }

 private:
  std::vector<double> weights_;
};

/// A token first picks a group, then draws with that group's weights.
class Grouped final : public RoutingModel {
 public:
  explicit Grouped(std::vector<std::vector<double>> weights_of_group)
      : weights_of_group_(std::move(weights_of_group)) {}
  void draw(std::mt19937_64& random, std::int64_t, std::int64_t, std::span<std::int32_t> experts) const override {
    draw_weighted(random, weights_of_group_[random() % weights_of_group_.size()], experts);
  }

 private:
  std::vector<std::vector<double>> weights_of_group_;
};

double number_after_colon(const std::string& name, double least) {
  const std::size_t begin = name.find(':') + 1;
  double value = 0;
  const auto [end, error] = std::from_chars(name.data() + begin, name.data() + name.size(), value);
  if (error != std::errc{} || end != name.data() + name.size() || !(value >= least))
    fail(ErrorCode::invalid_argument, "--routing {}: expected a number of at least {} after the colon", name, least);
  return value;
}

std::vector<double> zipf(std::size_t num_experts, double exponent) {
  std::vector<double> weights;
  for (std::size_t expert = 0; expert < num_experts; ++expert)
    weights.push_back(std::pow(static_cast<double>(expert + 1), -exponent));
  return weights;
}

/// All experts of a token on one node, drawn uniformly.
std::vector<std::vector<double>> node_local(const ExpertMap& map, const Topology& topology, std::int32_t topk) {
  std::vector<std::vector<double>> groups(static_cast<std::size_t>(topology.num_nodes()),
                                          std::vector<double>(static_cast<std::size_t>(map.num_experts())));
  std::vector<std::int32_t> sizes(groups.size());
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    const NodeId node = topology.node(map.rank(map.copies(ExpertId(expert)).front()));
    groups[node.index()][static_cast<std::size_t>(expert)] = 1;
    ++sizes[node.index()];
  }
  if (const auto least = *std::min_element(sizes.begin(), sizes.end()); least < topk)
    fail(ErrorCode::invalid_argument, "--routing node-local: a node holds {} experts, fewer than --topk {}", least,
         topk);
  return groups;
}

/// The experts of half of the ranks draw three times the tokens of the others'.
std::vector<double> bimodal(const ExpertMap& map) {
  std::vector<double> weights;
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert)
    weights.push_back(map.rank(map.copies(ExpertId(expert)).front()).value % 2 == 0 ? 3 : 1);
  return weights;
}

/// Experts in groups, a token's experts mostly (nine times in ten) from one of them.
std::vector<std::vector<double>> clustered(std::int32_t num_experts, std::int32_t num_groups) {
  std::vector<std::vector<double>> groups;
  for (std::int32_t group = 0; group < num_groups; ++group) {
    std::vector<double> weights;
    for (std::int32_t expert = 0; expert < num_experts; ++expert)
      weights.push_back(expert % num_groups == group ? 9.0 * (num_groups - 1) : 1.0);
    groups.push_back(num_groups > 1 ? std::move(weights)
                                    : std::vector<double>(static_cast<std::size_t>(num_experts), 1.0));
  }
  return groups;
}

}  // namespace

std::unique_ptr<RoutingModel> make_routing_model(const std::string& name, const ExpertMap& map,
                                                 const Topology& topology, std::int32_t topk,
                                                 std::int64_t tokens_per_rank) {
  const auto num_experts = static_cast<std::size_t>(map.num_experts());
  if (name == "uniform") return std::make_unique<Weighted>(std::vector<double>(num_experts, 1.0));
  if (name == "bimodal") return std::make_unique<Weighted>(bimodal(map));
  if (name == "node-local") return std::make_unique<Grouped>(node_local(map, topology, topk));
  if (name.starts_with("zipf:")) return std::make_unique<Weighted>(zipf(num_experts, number_after_colon(name, 0)));
  if (name.starts_with("clustered:")) {
    const auto groups = static_cast<std::int32_t>(number_after_colon(name, 1));
    return std::make_unique<Grouped>(clustered(map.num_experts(), groups));
  }
  if (name.starts_with("trace:"))
    return std::make_unique<Trace>(Trace::read(name.substr(6), map.num_experts(), topk, tokens_per_rank));
  fail(ErrorCode::invalid_argument,
       "--routing {}: expected uniform, zipf:A, node-local, bimodal, clustered:G or trace:FILE", name);
}

}  // namespace shunt::cli
