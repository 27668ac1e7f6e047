// Which copy of an expert serves a token.
#pragma once

#include <cstdint>

#include "core/cuda/map_tables.hpp"

namespace shunt::device {

/// The only copy of an expert; −1 where there are several, or no such expert.
__device__ inline std::int32_t only_copy_of(const MapTables& map, std::int32_t expert) {
  return expert >= 0 && expert < map.num_experts ? map.only_copy[expert] : -1;
}

/// As ExpertMap::choose says: the physical expert, or −1 where there is no such expert. turn() is the source plus the
/// token, asked for only where there are several copies.
template <class Turn>
__device__ inline std::int32_t choose_copy(const MapTables& map, std::int32_t expert, const Turn& turn) {
  const std::int32_t only = only_copy_of(map, expert);
  if (only >= 0 || expert < 0 || expert >= map.num_experts) return only;
  const std::int32_t begin = map.copies_begin[expert];
  const std::int32_t num_copies = map.copies_begin[expert + 1] - begin;
  return map.copies[begin + static_cast<std::int32_t>(turn() % num_copies)];
}

}  // namespace shunt::device
