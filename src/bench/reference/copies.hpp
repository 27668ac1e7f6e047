// A slow, obvious choice of copies that follows the contract of CopyChoice literally.
#pragma once

#include <span>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The chosen copy for each of a token's choices; −1 if experts[choice] is −1.
std::vector<PhysicalId> reference_copies(const ExpertMap& map, const Topology& topology, RankId source,
                                         std::span<const std::int32_t> experts);

}  // namespace shunt
