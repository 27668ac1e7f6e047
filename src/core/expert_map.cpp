#include "shunt/expert_map.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

struct Copy {
  ExpertId expert;
  std::int32_t share;
};

/// Throws where the shares don't match the placement.
void check_shares(const std::vector<std::vector<ExpertId>>& placement, const ExpertMap::Shares& shares) {
  if (shares.empty()) return;
  if (shares.size() != placement.size())
    fail(ErrorCode::invalid_argument, "expert map: shares for {} ranks, but a placement on {}", shares.size(),
         placement.size());
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    if (shares[rank].size() != placement[rank].size())
      fail(ErrorCode::invalid_argument, "expert map: rank {} lists {} experts, but {} shares", rank,
           placement[rank].size(), shares[rank].size());
    for (std::size_t i = 0; i < shares[rank].size(); ++i)
      if (shares[rank][i] < 1 || shares[rank][i] > ExpertMap::kMaxShare)
        fail(ErrorCode::invalid_argument, "expert map: rank {}: the share of expert {} is {}, expected 1 to {}", rank,
             placement[rank][i], shares[rank][i], ExpertMap::kMaxShare);
  }
}

/// A rank's copies by ascending expert.
std::vector<Copy> sorted_copies(const std::vector<ExpertId>& experts, const std::vector<std::int32_t>* shares) {
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < experts.size(); ++i) copies.push_back({experts[i], shares ? (*shares)[i] : 1});
  std::sort(copies.begin(), copies.end(), [](const Copy& a, const Copy& b) { return a.expert < b.expert; });
  return copies;
}

}  // namespace

ExpertMap ExpertMap::contiguous(std::int32_t num_experts, std::int32_t num_ranks) {
  if (num_ranks < 1) fail(ErrorCode::invalid_argument, "expert map: num_ranks is {}, expected at least 1", num_ranks);
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(num_ranks));
  std::int32_t next = 0;
  for (std::int32_t rank = 0; rank < num_ranks; ++rank) {
    const std::int32_t share = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    for (std::int32_t i = 0; i < share; ++i) placement[static_cast<std::size_t>(rank)].emplace_back(next++);
  }
  return from_placement(num_experts, placement);
}

ExpertMap ExpertMap::from_placement(std::int32_t num_experts,
                                    std::initializer_list<std::initializer_list<std::int32_t>> placement,
                                    const Shares& shares) {
  std::vector<std::vector<ExpertId>> of_ranks;
  for (const auto& experts : placement) {
    of_ranks.emplace_back();
    for (const std::int32_t expert : experts) of_ranks.back().emplace_back(expert);
  }
  return from_placement(num_experts, of_ranks, shares);
}

ExpertMap ExpertMap::from_placement(std::int32_t num_experts, const std::vector<std::vector<ExpertId>>& placement,
                                    const Shares& shares) {
  if (num_experts < 1)
    fail(ErrorCode::invalid_argument, "expert map: num_experts is {}, expected at least 1", num_experts);
  if (placement.empty()) fail(ErrorCode::invalid_argument, "expert map: placement has no ranks");
  check_shares(placement, shares);

  ExpertMap map;
  std::vector<std::vector<PhysicalId>> copies(static_cast<std::size_t>(num_experts));
  map.first_of_rank_.push_back(0);
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    const auto local = sorted_copies(placement[rank], shares.empty() ? nullptr : &shares[rank]);
    for (std::size_t i = 0; i < local.size(); ++i) {
      const ExpertId expert = local[i].expert;
      if (expert.value < 0 || expert.value >= num_experts)
        fail(ErrorCode::invalid_argument, "expert map: rank {} lists expert {}, expected 0 to {}", rank, expert,
             num_experts - 1);
      if (i > 0 && local[i - 1].expert == expert)
        fail(ErrorCode::invalid_argument, "expert map: rank {} lists expert {} twice", rank, expert);
      copies[expert.index()].emplace_back(map.logical_.size());
      map.logical_.push_back(expert);
      map.rank_.emplace_back(rank);
      map.share_.push_back(local[i].share);
    }
    map.first_of_rank_.push_back(map.num_physical());
  }

  map.copies_begin_.push_back(0);
  for (std::size_t expert = 0; expert < copies.size(); ++expert) {
    if (copies[expert].empty()) fail(ErrorCode::invalid_argument, "expert map: expert {} is on no rank", expert);
    map.copies_.insert(map.copies_.end(), copies[expert].begin(), copies[expert].end());
    map.copies_begin_.push_back(static_cast<std::int32_t>(map.copies_.size()));
  }

  Hasher hasher;
  hasher.add(num_experts).add_all<std::int32_t>(map.first_of_rank_);
  for (const ExpertId expert : map.logical_) hasher.add(expert.index());
  hasher.add_all<std::int32_t>(map.share_);
  map.hash_ = hasher.value();
  return map;
}

ExpertMap ExpertMap::restricted_to(std::span<const RankId> ranks) const {
  std::vector<std::vector<ExpertId>> placement;
  Shares shares;
  for (const RankId rank : ranks) {
    if (rank.value < 0 || rank.value >= num_ranks())
      fail(ErrorCode::invalid_argument, "expert map: no rank {}, expected 0 to {}", rank, num_ranks() - 1);
    const std::int32_t begin = first_of_rank_[rank.index()], end = begin + num_local(rank);
    placement.emplace_back(logical_.begin() + begin, logical_.begin() + end);
    shares.emplace_back(share_.begin() + begin, share_.begin() + end);
  }
  return from_placement(num_experts(), placement, shares);
}

}  // namespace shunt
