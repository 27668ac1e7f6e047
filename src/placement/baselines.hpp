// Placements that others make, to compare with and to start from.
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
/// least related to those placed, each rank is filled with the expert most related to it. Result: [experts] ranks.
/// co_activation: [experts, experts].
std::vector<std::int32_t> occult_greedy(std::span<const std::int64_t> co_activation, std::size_t num_experts,
                                        std::size_t num_ranks);

/// The greedy's result; then, while a rank is over the limit, of all swaps that lower the busiest load by a twentieth
/// of its excess or more the one that adds least to C_T. Nothing where there is no such swap any more.
std::optional<std::vector<std::int32_t>> occult_repaired(const PartitionProblem& problem,
                                                         std::span<const std::int32_t> greedy);

/// What EPLB does: experts to nodes by load, then in each node copies of those with the most rows per copy until the
/// node's places are full, then to ranks by load; always the heaviest first, to the lightest that has room. `places`:
/// physical experts in all, at least as many as experts. Counts per rank differ by at most one.
ExpertMap load_only(std::span<const std::int64_t> rows, const Topology& topology, std::int32_t places);

/// The lowest busiest load that swaps from there find, without copies. Result: [experts] ranks.
std::vector<std::int32_t> balance(std::span<const std::int64_t> rows, std::span<const std::int32_t> rank_of,
                                  std::size_t num_ranks);

}  // namespace shunt::placement
