// Which copy of an expert serves a token.
#pragma once

#include <cstdint>

namespace shunt::device {

/// As ExpertMap::choose says: the physical expert, or −1 where there is no such expert. Map has the tables of
/// plan/cuda/map_tables.hpp. turn() is the source plus the token, asked for only where there are several copies.
template <class Map, class Turn>
__device__ inline std::int32_t choose_copy(const Map& map, std::int32_t expert, const Turn& turn) {
  if (expert < 0 || expert >= map.num_experts) return -1;
  const std::int32_t only = map.only_copy[expert];
  if (only >= 0) return only;
  const std::int32_t begin = map.copies_begin[expert];
  const std::int32_t num_copies = map.copies_begin[expert + 1] - begin;
  return map.copies[begin + static_cast<std::int32_t>(turn() % num_copies)];
}

}  // namespace shunt::device
