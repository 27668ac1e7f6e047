// The values of a training on disk, whatever the number of ranks and the map: experts are stored by logical number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "runtime/store.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/world.hpp"

namespace shunt::runtime {

/// What a training is, besides its values.
struct TrainingState {
  std::string model;                         ///< its description
  std::int64_t sequences = 0, sequence = 0;  ///< of a step of all ranks; bytes of each
  std::uint64_t seed = 0;
  std::uint64_t corpus = 0;    ///< hash_of(Corpus)
  std::int64_t steps = 0;      ///< done
  std::uint64_t checksum = 0;  ///< of the file that it was read from
};

/// Collective: writes the parameters and states of the graph. The file appears under its name only once it is whole, so
/// an older one stays until then. Of an expert's copies, which are equal, one is stored. All ranks throw if rank 0,
/// which writes, fails.
void save_checkpoint(World& world, const graph::Graph& graph, Store& store, const ExpertMap& map,
                     const TrainingState& state, const std::string& path);

/// Reads a checkpoint into the store, with `experts`, this rank's logical experts, of values that have experts. Throws
/// Error(invalid_argument) that names the file if it is not a checkpoint, is damaged, or is of another model.
TrainingState load_checkpoint(const graph::Graph& graph, Store& store, std::span<const ExpertId> experts,
                              const std::string& path);

/// The same, without values.
TrainingState read_training_state(const std::string& path);

/// Collective: throws Error(code) on all ranks with the text of the first one that brings one.
void agree(World& world, const std::string& failure, ErrorCode code);

/// This rank's logical experts, ascending.
std::vector<ExpertId> experts_of(const ExpertMap& map, RankId rank);

}  // namespace shunt::runtime
