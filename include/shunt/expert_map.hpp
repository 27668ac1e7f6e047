// Assignment of logical experts to ranks.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "shunt/ids.hpp"

namespace shunt {

/// Immutable. A *physical* expert is one copy of an expert on a rank. Physical experts are numbered by rank and, within
/// a rank, by ascending logical expert, so a rank's experts are contiguous.
class ExpertMap {
 public:
  /// Spreads experts in order and as evenly as possible: the first (experts mod ranks) ranks hold one more.
  static ExpertMap contiguous(std::int32_t num_experts, std::int32_t num_ranks);

  static constexpr std::int32_t kMaxShare = 65535;
  /// shares[rank][i] belongs to placement[rank][i]; empty: 1 for every copy.
  using Shares = std::vector<std::vector<std::int32_t>>;

  /// placement[rank] lists that rank's logical experts in any order; it may be empty. Throws Error(invalid_argument) if
  /// an expert has no copy, is out of range, or occurs twice on one rank, and if shares don't match the placement or
  /// are not within 1 to kMaxShare.
  static ExpertMap from_placement(std::int32_t num_experts, const std::vector<std::vector<ExpertId>>& placement,
                                  const Shares& shares = {});
  /// The same for a map written out in code: from_placement(4, {{0, 1}, {2, 3}}).
  static ExpertMap from_placement(std::int32_t num_experts,
                                  std::initializer_list<std::initializer_list<std::int32_t>> placement,
                                  const Shares& shares = {});

  /// The map of a world of these ranks only, in this order, with their shares. Throws Error(invalid_argument) if an
  /// expert has no copy on them; experts then need a new placement.
  [[nodiscard]] ExpertMap restricted_to(std::span<const RankId> ranks) const;

  [[nodiscard]] std::int32_t num_experts() const { return static_cast<std::int32_t>(copies_begin_.size()) - 1; }
  [[nodiscard]] std::int32_t num_ranks() const { return static_cast<std::int32_t>(first_of_rank_.size()) - 1; }
  [[nodiscard]] std::int32_t num_physical() const { return static_cast<std::int32_t>(logical_.size()); }
  [[nodiscard]] bool has_replicas() const { return num_physical() > num_experts(); }

  [[nodiscard]] ExpertId logical(PhysicalId p) const { return logical_[p.index()]; }
  [[nodiscard]] RankId rank(PhysicalId p) const { return rank_[p.index()]; }
  /// The load that a copy is meant to take, relative to the shares of the expert's other copies.
  [[nodiscard]] std::int32_t share(PhysicalId p) const { return share_[p.index()]; }

  /// A rank's physical experts are [first_physical(rank), first_physical(rank) + num_local(rank)).
  [[nodiscard]] PhysicalId first_physical(RankId rank) const { return PhysicalId(first_of_rank_[rank.index()]); }
  [[nodiscard]] std::int32_t num_local(RankId rank) const {
    return first_of_rank_[rank.index() + 1] - first_of_rank_[rank.index()];
  }

  /// The copies of an expert, by ascending rank; never empty. CopyChoice selects the one that serves a token.
  [[nodiscard]] std::span<const PhysicalId> copies(ExpertId expert) const {
    const auto begin = static_cast<std::size_t>(copies_begin_[expert.index()]);
    const auto end = static_cast<std::size_t>(copies_begin_[expert.index() + 1]);
    return std::span(copies_).subspan(begin, end - begin);
  }

  /// Equal maps have equal hashes on every rank.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }

 private:
  ExpertMap() = default;

  std::vector<ExpertId> logical_;            // by physical expert
  std::vector<RankId> rank_;                 // by physical expert
  std::vector<std::int32_t> share_;          // by physical expert
  std::vector<std::int32_t> first_of_rank_;  // ranks + 1
  std::vector<PhysicalId> copies_;           // grouped by logical expert
  std::vector<std::int32_t> copies_begin_;   // experts + 1
  std::uint64_t hash_ = 0;
};

}  // namespace shunt
