// Which copies of its experts serve a token.
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

/// A pure function of the map, the topology, the token's source and the set of its experts: not of the token's number,
/// nor of the order of its choices. So every rank and every device agree, and splitting a batch changes nothing.
///
/// Ranks of experts with one copy are needed in any case. Experts with several copies follow, by ascending id. Each
/// goes to a rank that the token needs already; else to the source's own; else to a node that the token needs already
/// or the source's; else anywhere. Copies that are equally good take turns in proportion to their shares, by a hash of
/// the token's experts. The chosen rank is needed from then on (docs/adr/0016).
class CopyChoice {
 public:
  /// Throws Error(invalid_argument) where the two have different numbers of ranks.
  CopyChoice(const ExpertMap& map, const Topology& topology);

  /// experts: a token's, −1 = dropped, each at most once; copies: as many, −1 where dropped. From any thread. Throws
  /// Error(invalid_argument) where the source is no rank, or the spans differ or are longer than Routing::kMaxTopK.
  void choose(RankId source, std::span<const std::int32_t> experts, std::span<PhysicalId> copies) const;

 private:
  std::shared_ptr<const CopyArrays> arrays_;
  std::vector<NodeId> node_of_;  // by rank
};

}  // namespace shunt
