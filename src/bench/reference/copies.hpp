// A slow, obvious choice of copies: follows the contract of CopyChoice word by word.
#pragma once

#include <span>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The copies that serve a token, by choice; −1 where experts[choice] is −1.
std::vector<PhysicalId> reference_copies(const ExpertMap& map, const Topology& topology, RankId source,
                                         std::span<const std::int32_t> experts);

}  // namespace shunt
