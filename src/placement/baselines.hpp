// Placements of other systems, for comparison and as starting points.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "placement/partition_search.hpp"
#include "placement/routed_tokens.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt::placement {

/// Occult's greedy (arXiv 2505.13345): the strongest pair starts the first rank, each next rank starts with the expert
/// least related to those placed, and each rank is filled with the expert most related to it. Returns the rank of each
/// expert. co_activation: [experts, experts].
std::vector<std::int32_t> occult_greedy(std::span<const std::int64_t> co_activation, std::size_t num_experts,
                                        std::size_t num_ranks);

/// Repairs the greedy's result: while a rank exceeds the limit, among all swaps that lower the largest load by at least
/// a twentieth of its excess, makes the one that adds least to C_T. None if there is no such swap left.
std::optional<std::vector<std::int32_t>> occult_repaired(const PartitionProblem& problem,
                                                         std::span<const std::int32_t> greedy);

/// EPLB's method: assigns experts to nodes by load; then in each node copies the experts with the most rows per copy
/// until the node's places are full; then assigns to ranks by load. The heaviest goes first, to the lightest with room.
/// places: total number of physical experts, at least the number of experts. Counts per rank differ by at most one.
ExpertMap load_only(std::span<const std::int64_t> rows, const Topology& topology, std::int32_t places);

/// Minimises the largest load by swaps from `rank_of`, without copies. Returns the rank of each expert.
std::vector<std::int32_t> balance(std::span<const std::int64_t> rows, std::span<const std::int32_t> rank_of,
                                  std::size_t num_ranks);

}  // namespace shunt::placement
