// Which copies of its experts serve a token, on a device (include/shunt/copy_choice.hpp).
#pragma once

#include <cstdint>

#include "core/copy_choice.hpp"
#include "core/cuda/map_tables.hpp"

namespace shunt::device {

/// The only copy of an expert; −1 where there are several, or no such expert.
__device__ inline std::int32_t only_copy_of(const MapTables& map, std::int32_t expert) {
  return expert >= 0 && expert < map.num_experts ? map.only_copy[expert] : -1;
}

/// Calls use(choice, physical expert) for each of a token's experts, in any order; `experts` as for the host.
template <class Experts, class Use>
__device__ void choose_copies_of_token(const MapTables& map, std::int32_t source, const Experts& experts,
                                       std::int32_t topk, const Use& use) {
  if (map.num_ranks <= NeededBits::kMaxRanks) {
    NeededBits needed(map.node_of[source]);
    choose_copies(map.copies, source, experts, topk, needed, use);
  } else {
    NeededList needed(map.node_of[source]);
    choose_copies(map.copies, source, experts, topk, needed, use);
  }
}

}  // namespace shunt::device
