// The rule by which copies are chosen, for hosts and devices alike (constexpr functions are both). What the rule is
// for: include/shunt/copy_choice.hpp.
#pragma once

#include <cstdint>

#include "core/copy_tables.hpp"
#include "shunt/routing.hpp"

namespace shunt {

/// Spreads close numbers over 32 bits (the finaliser of MurmurHash3).
constexpr std::uint32_t spread_bits(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6bu;
  value = (value ^ (value >> 13)) * 0xc2b2ae35u;
  return value ^ (value >> 16);
}

/// A token's hash is the sum over its experts, so that their order does not count.
constexpr std::uint32_t hash_of_expert(std::int32_t expert) {
  return spread_bits(static_cast<std::uint32_t>(expert) + 0x9e3779b9u);
}

/// A token's number for one of its experts, from its hash.
constexpr std::uint32_t draw(std::uint32_t hash, std::int32_t expert) {
  return spread_bits(hash + static_cast<std::uint32_t>(expert));
}

/// The ranks and nodes that a token needs already, where there are few: the node of its source at first.
class NeededBits {
 public:
  static constexpr std::int32_t kMaxRanks = 64;

  constexpr NeededBits() = default;
  constexpr explicit NeededBits(std::int32_t source_node) : nodes_(bit(source_node)) {}

  [[nodiscard]] constexpr bool has_rank(std::int32_t rank) const { return (ranks_ & bit(rank)) != 0; }
  [[nodiscard]] constexpr bool has_node(std::int32_t node) const { return (nodes_ & bit(node)) != 0; }
  constexpr void add(std::int32_t rank, std::int32_t node) {
    ranks_ |= bit(rank);
    nodes_ |= bit(node);
  }
  constexpr void add(const NeededBits& others) {
    ranks_ |= others.ranks_;
    nodes_ |= others.nodes_;
  }

 private:
  static constexpr std::uint64_t bit(std::int32_t index) { return std::uint64_t{1} << index; }

  std::uint64_t ranks_ = 0;
  std::uint64_t nodes_ = 0;
};

/// The same for any number of ranks.
class NeededList {
 public:
  constexpr NeededList() = default;
  constexpr explicit NeededList(std::int32_t source_node) : source_node_(source_node) {}

  [[nodiscard]] constexpr bool has_rank(std::int32_t rank) const { return holds(ranks_, rank); }
  [[nodiscard]] constexpr bool has_node(std::int32_t node) const { return node == source_node_ || holds(nodes_, node); }
  constexpr void add(std::int32_t rank, std::int32_t node) {
    ranks_[size_] = rank;
    nodes_[size_] = node;
    ++size_;
  }
  constexpr void add(const NeededList& others) {
    for (std::int32_t i = 0; i < others.size_; ++i) add(others.ranks_[i], others.nodes_[i]);
  }

 private:
  constexpr bool holds(const std::int32_t* all, std::int32_t one) const {
    for (std::int32_t i = 0; i < size_; ++i)
      if (all[i] == one) return true;
    return false;
  }

  std::int32_t source_node_ = -1;
  std::int32_t size_ = 0;
  std::int32_t ranks_[Routing::kMaxTopK]{};
  std::int32_t nodes_[Routing::kMaxTopK]{};
};

/// Calls use(needed) with what serves so many ranks; nothing is needed yet but the source's node.
template <class Use>
constexpr void with_needed(std::int32_t num_ranks, std::int32_t source_node, const Use& use) {
  if (num_ranks <= NeededBits::kMaxRanks) {
    NeededBits needed(source_node);
    use(needed);
  } else {
    NeededList needed(source_node);
    use(needed);
  }
}

/// The copy of an expert that has several: [begin, begin + num). `drawn` is the token's hash with the expert.
template <class Needed>
constexpr const CopyTables::Copy& choose_copy(const CopyTables::Copy* begin, std::int32_t num, std::uint32_t drawn,
                                              std::int32_t source, const Needed& needed) {
  // Without branches on what a token needs, which no machine could predict.
  const auto detour = [&](std::int32_t i) {
    const int to_node = needed.has_node(begin[i].node) ? 2 : 3;
    const int to_rank = begin[i].rank == source ? 1 : to_node;
    return needed.has_rank(begin[i].rank) ? 0 : to_rank;
  };
  int least = 3;
  for (std::int32_t i = 0; i < num; ++i) {
    const int each = detour(i);
    least = each < least ? each : least;
  }
  const auto share = [&](std::int32_t i) {
    return detour(i) == least ? static_cast<std::uint32_t>(begin[i].share) : 0;
  };
  std::uint32_t shares = 0;
  for (std::int32_t i = 0; i < num; ++i) shares += share(i);
  const auto turn = static_cast<std::uint32_t>(std::uint64_t{drawn} * shares >> 32);
  std::uint32_t passed = 0;
  std::int32_t chosen = 0;
  for (std::int32_t i = 0; i + 1 < num; ++i) {
    passed += share(i);
    chosen += turn >= passed ? 1 : 0;
  }
  return begin[chosen];
}

/// Calls use(choice, physical expert) for each of a token's experts, in any order. experts[choice] gives them, each at
/// most once; −1, and whatever else is no expert: dropped. `needed` is as with_needed() makes it.
template <class Experts, class Needed, class Use>
constexpr void choose_copies(const CopyTables& map, std::int32_t source, const Experts& experts, std::int32_t topk,
                             Needed& needed, const Use& use) {
  std::uint32_t hash = 0;
  std::uint64_t several = 0;  // a bit per choice whose expert has several copies
  static_assert(Routing::kMaxTopK <= 64);
  for (std::int32_t choice = 0; choice < topk; ++choice) {
    const std::int32_t expert = experts[choice];
    if (expert < 0 || expert >= map.num_experts) continue;
    const CopyTables::Expert of_expert = map.experts[expert];
    hash += of_expert.hash;
    if (of_expert.only_copy < 0) {
      several |= std::uint64_t{1} << choice;
    } else {
      needed.add(of_expert.rank, of_expert.node);
      use(choice, of_expert.only_copy);
    }
  }
  while (several != 0) {
    std::int32_t next = -1;
    for (std::int32_t choice = 0; choice < topk; ++choice)
      if ((several >> choice & 1) != 0 && (next < 0 || experts[choice] < experts[next])) next = choice;
    several &= ~(std::uint64_t{1} << next);
    const std::int32_t begin = map.copies_begin[experts[next]];
    const CopyTables::Copy& chosen = choose_copy(map.copies + begin, map.copies_begin[experts[next] + 1] - begin,
                                                 draw(hash, experts[next]), source, needed);
    needed.add(chosen.rank, chosen.node);
    use(next, chosen.physical);
  }
}

}  // namespace shunt
