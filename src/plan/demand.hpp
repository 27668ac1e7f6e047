// What this rank's routing asks for, with replicas chosen and each token's entries in tree order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

struct DemandEntry {
  PhysicalId expert;
  std::int32_t choice;  ///< index in the token's top-k
};

struct Demand {
  std::vector<std::uint32_t> first_entry;  ///< [tokens + 1]
  std::vector<DemandEntry> entries;        ///< dropped ones are left out

  [[nodiscard]] std::size_t num_tokens() const { return first_entry.size() - 1; }
  [[nodiscard]] std::span<const DemandEntry> entries_of(std::size_t token) const {
    return std::span(entries).subspan(first_entry[token], first_entry[token + 1] - first_entry[token]);
  }
};

/// Throws Error(invalid_argument) that names rank, token and cause if an expert is out of range or repeated, or a
/// weight is not finite. Sizes have been checked before (check_request).
Demand read_demand(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self);

/// Drops what exceeds kept[physical expert], later tokens first. Returns how many entries were dropped.
std::int64_t keep_first_rows(Demand& demand, std::span<const std::uint32_t> kept);

}  // namespace shunt
