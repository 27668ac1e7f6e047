#include "shunt/expert_map.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {

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

ExpertMap ExpertMap::from_placement(std::int32_t num_experts, const std::vector<std::vector<ExpertId>>& placement) {
  if (num_experts < 1)
    fail(ErrorCode::invalid_argument, "expert map: num_experts is {}, expected at least 1", num_experts);
  if (placement.empty()) fail(ErrorCode::invalid_argument, "expert map: placement has no ranks");

  ExpertMap map;
  std::vector<std::vector<PhysicalId>> copies(static_cast<std::size_t>(num_experts));
  map.first_of_rank_.push_back(0);
  for (std::size_t rank = 0; rank < placement.size(); ++rank) {
    auto local = placement[rank];
    std::sort(local.begin(), local.end());
    for (std::size_t i = 0; i < local.size(); ++i) {
      const ExpertId expert = local[i];
      if (expert.value < 0 || expert.value >= num_experts)
        fail(ErrorCode::invalid_argument, "expert map: rank {} lists expert {}, expected 0 to {}", rank, expert,
             num_experts - 1);
      if (i > 0 && local[i - 1] == expert)
        fail(ErrorCode::invalid_argument, "expert map: rank {} lists expert {} twice", rank, expert);
      copies[expert.index()].emplace_back(map.logical_.size());
      map.logical_.push_back(expert);
      map.rank_.emplace_back(rank);
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
  hasher.add(static_cast<std::uint64_t>(num_experts)).add_all<std::int32_t>(map.first_of_rank_);
  for (const ExpertId expert : map.logical_) hasher.add(expert.index());
  map.hash_ = hasher.value();
  return map;
}

ExpertMap ExpertMap::restricted_to(std::span<const RankId> ranks) const {
  std::vector<std::vector<ExpertId>> placement;
  for (const RankId rank : ranks) {
    if (rank.value < 0 || rank.value >= num_ranks())
      fail(ErrorCode::invalid_argument, "expert map: no rank {}, expected 0 to {}", rank, num_ranks() - 1);
    const auto begin = logical_.begin() + first_of_rank_[rank.index()];
    placement.emplace_back(begin, begin + num_local(rank));
  }
  return from_placement(num_experts(), placement);
}

}  // namespace shunt
