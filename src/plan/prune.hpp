// What hosts and devices share around the pruning of a token: tables of places, and the report.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/prune_token.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/pruning.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The tables of a map as one array of words, which may be copied to a device.
class PlaceWords {
 public:
  PlaceWords(const ExpertMap& map, const Topology& topology, PruneLevel level);

  [[nodiscard]] const std::vector<std::int32_t>& words() const { return words_; }
  /// Where the words lie, on the host or on a device.
  [[nodiscard]] PlaceTables at(const std::int32_t* words) const;

 private:
  std::int32_t num_experts_;
  std::vector<std::int32_t> words_;
  std::vector<std::size_t> begins_;  // of the tables
};

/// options.source must be a rank. tables: of the map, on the host or on a device.
CopiesFromSource copies_from(const PruneOptions& options, const CopyTables& tables, const Topology& topology);

/// Throws Error(invalid_argument) that names the cause. Sizes alone: arrays may lie on a device. num_scores: 0 without.
void check_pruning(const Routing& routing, std::size_t num_scores, const ExpertMap& map, const Topology& topology,
                   const PruneOptions& options);

/// Sums in double, by ascending token.
PruneReport report_on(std::span<const PrunedToken> tokens);

}  // namespace shunt
