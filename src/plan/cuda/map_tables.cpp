#include "plan/cuda/map_tables.hpp"

#include <algorithm>
#include <array>
#include <bit>
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

template <class T>
void MapWords::add(const std::vector<T>& table) {
  constexpr std::size_t kWords = sizeof(T) / sizeof(std::int32_t);
  words_.resize((words_.size() + kWords - 1) / kWords * kWords);  // aligns the table to its elements
  begins_.push_back(words_.size());
  for (const T& element : table) {
    const auto words = std::bit_cast<std::array<std::int32_t, kWords>>(element);
    words_.insert(words_.end(), words.begin(), words.end());
  }
}

MapWords::MapWords(const ExpertMap& map, const Topology& topology, bool flat)
    : num_experts_(map.num_experts()), num_physical_(map.num_physical()), num_ranks_(map.num_ranks()) {
  std::vector<std::int32_t> only_copy, rank_of, first_of_rank, node_of;
  const std::vector<std::int32_t> order = sum_order(map, topology, flat);
  std::vector<std::int32_t> key_of(order.size());
  for (std::size_t key = 0; key < order.size(); ++key)
    key_of[static_cast<std::size_t>(order[key])] = static_cast<std::int32_t>(key);
  const CopyArrays copies(map, topology);
  for (const CopyTables::Expert& expert : copies.experts) only_copy.push_back(expert.only_copy);
  for (std::int32_t p = 0; p < map.num_physical(); ++p) rank_of.push_back(map.rank(PhysicalId(p)).value);
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) {
    first_of_rank.push_back(map.first_physical(RankId(rank)).value);
    node_of.push_back(topology.node(RankId(rank)).value);
  }
  first_of_rank.push_back(map.num_physical());
  std::vector<std::int32_t> physical(static_cast<std::size_t>(map.num_physical()));
  std::iota(physical.begin(), physical.end(), 0);
  for (const auto& table : {only_copy, physical, rank_of, key_of, first_of_rank, node_of, copies.copies_begin})
    add(table);
  add(copies.experts);
  add(copies.copies);
}

MapTables MapWords::at(const std::int32_t* device) const {
  const auto table = [&](std::size_t i) { return device + begins_[i]; };
  return {.num_experts = num_experts_,
          .num_physical = num_physical_,
          .num_ranks = num_ranks_,
          .only_copy = table(0),
          .physical = table(1),
          .rank_of = table(2),
          .key_of = table(3),
          .first_of_rank = table(4),
          .node_of = table(5),
          .copies = {.num_experts = num_experts_,
                     .experts = reinterpret_cast<const CopyTables::Expert*>(table(7)),
                     .copies_begin = table(6),
                     .copies = reinterpret_cast<const CopyTables::Copy*>(table(8))}};
}

}  // namespace shunt::device
