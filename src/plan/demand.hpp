// The rows that this rank's routing demands: copies are chosen, and each token's entries are in tree order.
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
  std::vector<DemandEntry> entries;        ///< without dropped ones

  [[nodiscard]] std::size_t num_tokens() const { return first_entry.size() - 1; }
  [[nodiscard]] std::span<const DemandEntry> entries_of(std::size_t token) const {
    return std::span(entries).subspan(first_entry[token], first_entry[token + 1] - first_entry[token]);
  }
};

/// Throws Error(invalid_argument) that names rank, token and cause if an expert is out of range or repeated, or a
/// weight is not finite. check_request() has checked the sizes.
Demand read_demand(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self);

/// Drops the rows beyond kept[physical expert], later tokens first. Returns the number of dropped entries.
std::int64_t keep_first_rows(Demand& demand, std::span<const std::uint32_t> kept);

/// The order in which a token's rows are summed and listed: by node, then rank, then logical expert. Packs an entry
/// into one non-negative integer with this order: the physical expert's position is in the high bits, and the choice,
/// as a payload, in the low bits.
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

/// Sorts and unpacks the keys of each token, keys[first_entry[token] …], which may be in any order. Reads, but does not
/// use, up to kSortSlack keys beyond the last.
std::vector<DemandEntry> sort_in_tree_order(std::span<const std::int32_t> keys,
                                            std::span<const std::uint32_t> first_entry, const TreeOrder& order);
constexpr std::size_t kSortSlack = 8;

}  // namespace shunt
