#include "plan/cuda/map_tables.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace shunt::device {
namespace {

/// Physical experts in the order in which a token's rows are summed.
std::vector<std::int32_t> sum_order(const ExpertMap& map, const Topology& topology, bool flat) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(map.num_physical()));
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](std::int32_t p) {
    const PhysicalId expert(p);
    const RankId rank = map.rank(expert);
    const std::int32_t logical = map.logical(expert).value;
    return flat ? std::tuple(logical, 0, 0) : std::tuple(topology.node(rank).value, rank.value, logical);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace

MapWords::MapWords(const ExpertMap& map, const Topology& topology, bool flat)
    : num_experts_(map.num_experts()), num_physical_(map.num_physical()), num_ranks_(map.num_ranks()) {
  std::vector<std::int32_t> only_copy, copies_begin{0}, copies, rank_of, first_of_rank, node_of;
  const std::vector<std::int32_t> order = sum_order(map, topology, flat);
  std::vector<std::int32_t> key_of(order.size());
  for (std::size_t key = 0; key < order.size(); ++key)
    key_of[static_cast<std::size_t>(order[key])] = static_cast<std::int32_t>(key);
  for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
    const auto all = map.copies(ExpertId(expert));
    only_copy.push_back(all.size() == 1 ? all.front().value : -1);
    for (const PhysicalId copy : all) copies.push_back(copy.value);
    copies_begin.push_back(static_cast<std::int32_t>(copies.size()));
  }
  for (std::int32_t p = 0; p < map.num_physical(); ++p) rank_of.push_back(map.rank(PhysicalId(p)).value);
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) {
    first_of_rank.push_back(map.first_physical(RankId(rank)).value);
    node_of.push_back(topology.node(RankId(rank)).value);
  }
  first_of_rank.push_back(map.num_physical());
  for (const auto& table : {only_copy, copies_begin, copies, rank_of, key_of, first_of_rank, node_of}) {
    begins_.push_back(words_.size());
    words_.insert(words_.end(), table.begin(), table.end());
  }
}

MapTables MapWords::at(const std::int32_t* device) const {
  const auto table = [&](std::size_t i) { return device + begins_[i]; };
  return {num_experts_, num_physical_, num_ranks_, table(0), table(1),
          table(2),     table(3),      table(4),   table(5), table(6)};
}

}  // namespace shunt::device
