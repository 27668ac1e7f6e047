// The order in which a token's rows are summed and listed: by node, then rank, then logical expert.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/demand.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Packs an entry into one non-negative integer whose order is the tree order: the physical expert's position in the
/// high bits; the choice only travels along in the low ones.
class TreeOrder {
 public:
  TreeOrder(const ExpertMap& map, const Topology& topology);

  [[nodiscard]] std::int32_t key(PhysicalId expert) const { return key_[expert.index()]; }
  [[nodiscard]] DemandEntry entry(std::int32_t key_and_choice) const {
    return {expert_[static_cast<std::size_t>(key_and_choice >> kChoiceBits)], key_and_choice & kChoiceMask};
  }

  static constexpr int kChoiceBits = 6;
  static constexpr std::int32_t kChoiceMask = (1 << kChoiceBits) - 1;
  static constexpr std::int32_t kMaxPhysical = 1 << (31 - kChoiceBits);

 private:
  static_assert(Routing::kMaxTopK <= kChoiceMask + 1);

  std::vector<std::int32_t> key_;   // by physical expert, with choice 0
  std::vector<PhysicalId> expert_;  // by position
};

/// keys[first_entry[token] …] of each token in any order; gives them sorted and unpacked. Reads, but doesn't use, up to
/// kSortSlack keys behind the last.
std::vector<DemandEntry> sort_in_tree_order(std::span<const std::int32_t> keys,
                                            std::span<const std::uint32_t> first_entry, const TreeOrder& order);
constexpr std::size_t kSortSlack = 8;

}  // namespace shunt
