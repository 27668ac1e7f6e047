// The parts of pruning that CPUs and GPUs share, besides prune_token.hpp: tables of places, checks, and the report.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/prune_token.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/pruning.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// The tables of an expert map as one array of words, which may be copied to a device.
class PlaceWords {
 public:
  PlaceWords(const ExpertMap& map, const Topology& topology, PruneLevel level);

  [[nodiscard]] const std::vector<std::int32_t>& words() const { return words_; }
  /// The tables, given the address of the words in host or device memory.
  [[nodiscard]] PlaceTables at(const std::int32_t* words) const;

 private:
  std::int32_t num_experts_;
  std::vector<std::int32_t> words_;
  std::vector<std::size_t> begins_;  // first word of each table
};

/// options.source must be a rank. tables: the map's, in host or device memory.
CopiesFromSource copies_from(const PruneOptions& options, const CopyTables& tables, const Topology& topology);

/// Checks sizes only, because arrays may be in device memory. num_scores: 0 without scores. Throws
/// Error(invalid_argument) that names the cause.
void check_pruning(const Routing& routing, std::size_t num_scores, const ExpertMap& map, const Topology& topology,
                   const PruneOptions& options);

/// Sums in double, by ascending token.
PruneReport report_on(std::span<const PrunedToken> tokens);

}  // namespace shunt
