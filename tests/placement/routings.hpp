// Routings for tests of placement, and simple, slow counts of what maps cost on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "placement/place.hpp"
#include "placement/routed_tokens.hpp"

namespace shunt::test {

/// Random tokens, some choices dropped; popularity and co-activation of experts vary with the seed.
placement::RoutedTokens random_tokens(std::uint64_t seed, std::int32_t experts, std::int32_t topk, std::size_t tokens,
                                      std::int32_t ranks, bool drops = false);

/// A layer drawn by make_generator().
placement::RoutedTokens generated(const std::string& kind, const placement::PlaceOptions& options, std::int32_t experts,
                                  std::size_t tokens, std::uint64_t seed);

/// A layer of tests/data's real trace.
placement::RoutedTokens real_layer(std::int32_t layer, std::int32_t ranks);

/// Number of (token, rank) pairs; rank_of: [experts].
std::int64_t touched_ranks(const placement::RoutedTokens& tokens, const std::vector<std::int32_t>& rank_of);

/// Rows of the busiest rank over the mean.
double busiest_load(const placement::RoutedTokens& tokens, const std::vector<std::int32_t>& rank_of,
                    std::int32_t ranks);

/// [experts], for a map without copies.
std::vector<std::int32_t> ranks_of(const ExpertMap& map);

placement::PlaceOptions on_ranks(std::int32_t nodes, std::int32_t ranks_per_node, placement::Goal goal);

}  // namespace shunt::test
