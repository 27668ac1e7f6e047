// Expert maps of a model's layers, in a file: what `shunt place` writes and benchmarks and programs read.
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
  std::string origin;             ///< how the maps were made, for people; may be empty

  [[nodiscard]] std::int32_t ranks() const { return nodes * ranks_per_node; }

  /// From the text of such a file. Throws Error(invalid_argument) that names the source and the line or key: for text
  /// that is cut off or no map, a version that this release does not know, keys that mean nothing, experts that have no
  /// copy, are out of range or stand twice on a rank, another number of ranks, shares that don't match, and a hash that
  /// is not that of the maps.
  static PlacedLayers from_json(const std::string& source, const std::string& text);

  /// JSON with one line per rank, so that files can be compared by eye:
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
  /// `shunt_map` is the version of the format; `ranks` lists each rank's experts, `shares` their shares
  /// (ExpertMap::share), left out where all are 1. The hash covers all but the origin. Throws Error(invalid_argument)
  /// where layers don't have `experts` experts on ranks() ranks.
  [[nodiscard]] std::string to_json() const;
};

/// Throws Error(invalid_argument) as PlacedLayers::from_json does, and for files of more than 16 MiB.
PlacedLayers read_maps(const std::string& path);

/// The file is complete or not there. Throws Error(invalid_argument) for what read_maps would refuse, Error(system)
/// where it can't be written.
void write_maps(const std::string& path, const PlacedLayers& maps);

}  // namespace shunt
