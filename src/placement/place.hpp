// From a layer's routing to its expert map.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "placement/routed_tokens.hpp"
#include "placement/score.hpp"
#include "shunt/error.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::placement {

enum class Goal : std::uint8_t {
  time,  ///< the busiest link's, send or receive, between ranks and between nodes
  c_t,   ///< the mean number of distinct ranks per token
};

enum class Method : std::uint8_t { shunt, contiguous, occult_greedy, occult_repaired, load_only };
inline constexpr std::array kMethods = {Method::shunt, Method::contiguous, Method::occult_greedy,
                                        Method::occult_repaired, Method::load_only};
std::string_view to_string(Method method);
/// All methods of `all`. Throws Error(invalid_argument) that lists the names.
std::vector<Method> parse_methods(std::string_view name);

/// Effort is counted in steps, so that the result is the same on every machine.
struct SearchEffort {
  std::size_t sample = 20'000;     ///< tokens that swaps are scored on
  int starts = 4;                  ///< at least 1
  int steps = 400;                 ///< swaps per start
  int replica_proposals = 16'000;  ///< changes of copies that are tried
  std::uint64_t seed = 1;
};

/// Tables of pairs of experts have to fit into memory.
inline constexpr std::int32_t kMostExperts = 8192;

struct PlaceOptions {
  std::int32_t nodes = 1;
  std::int32_t ranks_per_node = 1;
  Goal goal = Goal::time;
  ShuffleCost cost;
  /// Expert copies beyond one each, in per cent of the experts.
  double replicas = 0;
  /// Most rows of a rank over the mean; by default 1.05 times what load_only reaches.
  std::optional<double> load_limit;
  SearchEffort effort;

  [[nodiscard]] Topology topology() const { return Topology::virtual_nodes(nodes * ranks_per_node, nodes); }
  /// Physical experts in all.
  [[nodiscard]] std::int32_t places(std::int32_t num_experts) const;
};

struct Placed {
  ExpertMap map;
  /// What the busiest rank's load was limited to; none for methods that ignore it.
  std::optional<double> load_limit;
};

/// Maps for these tokens that differ from `current` in at most so many experts, a few for each number: found from there
/// and from `fresh`. None have copies. Fewer, or none, where no map within the limits was found.
std::vector<ExpertMap> maps_near(const RoutedTokens& tokens, const ExpertMap& current, const ExpertMap& fresh,
                                 double load_limit, std::span<const std::int64_t> most_moves,
                                 const PlaceOptions& options);

/// No map was found whose busiest rank's load is within the limit.
class UnreachableLimit : public Error {
 public:
  UnreachableLimit(double limit, double least);
  /// The least load that was reached, rounded up, so that what is printed can be asked for.
  [[nodiscard]] double least() const { return least_; }

 private:
  double least_;
};

/// Sources of the tokens are ranks of the options' topology. Throws UnreachableLimit, and Error(invalid_argument) for
/// more than kMostExperts.
Placed place(Method method, const RoutedTokens& tokens, const PlaceOptions& options);

}  // namespace shunt::placement
