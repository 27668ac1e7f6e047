// Computes a layer's expert map from its routing.
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
  time,  ///< time of the busiest link, send or receive, between ranks and between nodes
  c_t,   ///< the mean number of distinct ranks per token
};

enum class Method : std::uint8_t { shunt, contiguous, occult_greedy, occult_repaired, load_only };
inline constexpr std::array kMethods = {Method::shunt, Method::contiguous, Method::occult_greedy,
                                        Method::occult_repaired, Method::load_only};
std::string_view to_string(Method method);
/// "all" gives all methods. Throws Error(invalid_argument) that lists the names.
std::vector<Method> parse_methods(std::string_view name);

/// Effort is counted in steps, so that the result is the same on every machine.
struct SearchEffort {
  std::size_t sample = 20'000;     ///< number of tokens on which swaps are scored
  int starts = 4;                  ///< at least 1
  int steps = 400;                 ///< swaps per start
  int replica_proposals = 16'000;  ///< number of proposed changes of copies
  std::uint64_t seed = 1;
};

/// Upper bound, because tables of pairs of experts must fit into memory.
inline constexpr std::int32_t kMostExperts = 8192;

struct PlaceOptions {
  std::int32_t nodes = 1;
  std::int32_t ranks_per_node = 1;
  Goal goal = Goal::time;
  ShuffleCost cost;
  /// Number of further copies, as a percentage of the experts.
  double replicas = 0;
  /// Upper bound on a rank's rows relative to the mean; by default 1.05 times that of load_only.
  std::optional<double> load_limit;
  SearchEffort effort;

  [[nodiscard]] Topology topology() const { return Topology::virtual_nodes(nodes * ranks_per_node, nodes); }
  /// Total number of physical experts.
  [[nodiscard]] std::int32_t places(std::int32_t num_experts) const;
};

struct Placed {
  ExpertMap map;
  /// The limit on the busiest rank's load; none for methods that ignore it.
  std::optional<double> load_limit;
};

/// Maps for these tokens, without copies, that differ from `current` in at most most_moves[i] experts, several for each
/// i. The search starts from `current` and from `fresh`. Fewer maps, or none, if none within the limits were found.
std::vector<ExpertMap> maps_near(const RoutedTokens& tokens, const ExpertMap& current, const ExpertMap& fresh,
                                 double load_limit, std::span<const std::int64_t> most_moves,
                                 const PlaceOptions& options);

/// No map was found whose busiest rank is within the load limit.
class UnreachableLimit : public Error {
 public:
  UnreachableLimit(double limit, double least);
  /// The smallest maximum load that was reached, rounded up, so that the printed value can be used as a limit.
  [[nodiscard]] double least() const { return least_; }

 private:
  double least_;
};

/// The sources of the tokens must be ranks of the options' topology. Throws UnreachableLimit, and
/// Error(invalid_argument) for more than kMostExperts experts.
Placed place(Method method, const RoutedTokens& tokens, const PlaceOptions& options);

}  // namespace shunt::placement
