// Files of expert maps for a model's layers: `shunt place` writes them, benchmarks and programs read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shunt/expert_map.hpp"

namespace shunt {

/// One map per layer, all for the same experts and ranks. Ranks are numbered node by node.
struct PlacedLayers {
  std::int32_t experts = 0;
  std::int32_t nodes = 1;
  std::int32_t ranks_per_node = 1;
  std::vector<ExpertMap> layers;  ///< at least one
  std::string origin;             ///< how the maps were made, for human readers; may be empty

  [[nodiscard]] std::int32_t ranks() const { return nodes * ranks_per_node; }

  /// Parses such a file. Throws Error(invalid_argument) that names the source and the line or key, for
  /// - text that is truncated or not a map, a version that this release can't read, unknown keys,
  /// - experts that have no copy, are out of range or occur twice on a rank,
  /// - a wrong number of ranks, shares that don't match, and a hash that is not the maps' hash.
  static PlacedLayers from_json(const std::string& source, const std::string& text);

  /// JSON with one line per rank, so that a line-based diff is readable:
  ///
  ///     {"shunt_map": 1,
  ///      "origin": "by hand",
  ///      "experts": 4, "nodes": 1, "ranks_per_node": 2,
  ///      "layers": [
  ///       {"ranks": [
  ///         [0, 1],
  ///         [1, 2, 3]],
  ///        "shares": [
  ///         [1, 3],
  ///         [1, 1, 1]]}],
  ///      "hash": "4da24d1b89377c5f"}
  ///
  /// `shunt_map` is the version of the format. `ranks` lists each rank's experts, and `shares` their shares
  /// (ExpertMap::share), omitted if all are 1. The hash covers everything but the origin. Throws
  /// Error(invalid_argument) if a layer doesn't have `experts` experts on ranks() ranks.
  [[nodiscard]] std::string to_json() const;
};

/// Throws Error(invalid_argument) as PlacedLayers::from_json does, and for files of more than 16 MiB.
PlacedLayers read_maps(const std::string& path);

/// Atomic: writes the complete file or none. Throws Error(invalid_argument) for maps that read_maps would refuse, and
/// Error(system) if the file can't be written.
void write_maps(const std::string& path, const PlacedLayers& maps);

}  // namespace shunt
