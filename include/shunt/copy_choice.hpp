// Chooses the copies of experts that serve a token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/ids.hpp"
#include "shunt/topology.hpp"

namespace shunt {

struct CopyArrays;

/// Chooses one copy of each of a token's experts. The choice is a pure function of the map, the topology, the token's
/// source rank and the set of its experts. It depends neither on the token's index nor on the order of its experts, so
/// every rank and every device agree, and splitting a batch changes nothing.
///
/// A token always uses the ranks of its experts with one copy. Its experts with several copies are then placed by
/// ascending id, each on the first that exists of
/// 1. a rank that the token already uses,
/// 2. the source rank,
/// 3. a node that the token already uses, or the source's node,
/// 4. any other rank.
///
/// Among equally good copies, a hash of the token's experts chooses in proportion to their shares. The chosen rank
/// counts as used from then on (docs/adr/0016).
class CopyChoice {
 public:
  /// Throws Error(invalid_argument) if map and topology have different numbers of ranks.
  CopyChoice(const ExpertMap& map, const Topology& topology);

  /// experts: the token's experts, each at most once; −1 = dropped. copies: output of the same length; −1 where
  /// dropped. Any thread. Throws Error(invalid_argument) if source is not a rank, or the spans differ in length or are
  /// longer than Routing::kMaxTopK.
  void choose(RankId source, std::span<const std::int32_t> experts, std::span<PhysicalId> copies) const;

 private:
  std::shared_ptr<const CopyArrays> arrays_;
  std::vector<NodeId> node_of_;  // by rank
};

}  // namespace shunt
