// An expert map and its topology in the form that core/copy_choice.hpp reads.
#pragma once

#include <cstdint>
#include <vector>

#include "shunt/expert_map.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// Views of arrays. Values that are read together are adjacent.
struct CopyTables {
  struct alignas(16) Expert {
    std::int32_t only_copy;  ///< physical; −1 if there are several, and then rank and node are unspecified
    std::int32_t rank;
    std::int32_t node;
    std::uint32_t hash;
  };
  struct alignas(16) Copy {
    std::int32_t physical;
    std::int32_t rank;
    std::int32_t node;
    std::int32_t share;
  };

  std::int32_t num_experts;
  const Expert* experts;             ///< [experts]
  const std::int32_t* copies_begin;  ///< [experts + 1]
  const Copy* copies;                ///< by expert, then rank
};

/// Owns the arrays of CopyTables.
struct CopyArrays {
  CopyArrays(const ExpertMap& map, const Topology& topology);

  std::vector<CopyTables::Expert> experts;
  std::vector<std::int32_t> copies_begin;
  std::vector<CopyTables::Copy> copies;

  [[nodiscard]] CopyTables tables() const {
    return {static_cast<std::int32_t>(experts.size()), experts.data(), copies_begin.data(), copies.data()};
  }
};

/// Distributes nearby numbers over 32 bits (the finaliser of MurmurHash3).
constexpr std::uint32_t spread_bits(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6bu;
  value = (value ^ (value >> 13)) * 0xc2b2ae35u;
  return value ^ (value >> 16);
}

/// A token's hash is the sum over its experts, so that it does not depend on their order.
constexpr std::uint32_t hash_of_expert(std::int32_t expert) {
  return spread_bits(static_cast<std::uint32_t>(expert) + 0x9e3779b9u);
}

/// A pseudo-random number for one expert of a token, from the token's hash.
constexpr std::uint32_t draw(std::uint32_t hash, std::int32_t expert) {
  return spread_bits(hash + static_cast<std::uint32_t>(expert));
}

/// The ranks and nodes that a token already uses, initially its source's node; for few ranks.
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

/// Calls use(needed) with a NeededBits or a NeededList, depending on the number of ranks, initialised with the source's
/// node.
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

/// Cost class of a copy: 0 for a rank that the token already uses, 1 for its source, 2 for a node that it already uses,
/// 3 elsewhere.
template <class Needed>
constexpr int detour_to(const CopyTables::Copy& copy, std::int32_t source, const Needed& needed) {
  const int to_node = needed.has_node(copy.node) ? 2 : 3;
  const int to_rank = copy.rank == source ? 1 : to_node;
  return needed.has_rank(copy.rank) ? 0 : to_rank;
}

/// The copy that serves a token, for an expert with the copies [begin, begin + num), num ≥ 2. drawn: draw() for the
/// token and the expert.
template <class Needed>
constexpr const CopyTables::Copy& choose_copy(const CopyTables::Copy* begin, std::int32_t num, std::uint32_t drawn,
                                              std::int32_t source, const Needed& needed) {
  // Without branches that depend on the token, because they would be mispredicted.
  const auto detour = [&](std::int32_t i) { return detour_to(begin[i], source, needed); };
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

/// choose_copy() for two copies as a table: for every state of the two ranks and nodes, the bound on draws that select
/// the first copy. Pays off if many tokens name the expert.
class TwoCopies {
 public:
  constexpr TwoCopies(const CopyTables::Copy* both, std::int32_t source) : both_{both[0], both[1]} {
    const std::uint64_t shares = static_cast<std::uint64_t>(both[0].share) + static_cast<std::uint64_t>(both[1].share);
    // If both copies are equally good: for draws below this, drawn × shares >> 32 is less than the first's share.
    const std::uint64_t turns = ((static_cast<std::uint64_t>(both[0].share) << 32) + shares - 1) / shares;
    for (std::uint32_t state = 0; state < kStates; ++state) {
      const int first = detour_to(both[0], source, Seen{(state & 1) != 0, (state & 2) != 0});
      const int second = detour_to(both[1], source, Seen{(state & 4) != 0, (state & 8) != 0});
      to_first_[state] = first < second ? std::uint64_t{1} << 32 : first > second ? 0 : turns;
    }
  }

  template <class Needed>
  [[nodiscard]] constexpr const CopyTables::Copy& choose(std::uint32_t drawn, const Needed& needed) const {
    const auto bit = [](bool is_set, int index) { return (is_set ? 1u : 0u) << index; };
    const std::uint32_t state = bit(needed.has_rank(both_[0].rank), 0) | bit(needed.has_node(both_[0].node), 1) |
                                bit(needed.has_rank(both_[1].rank), 2) | bit(needed.has_node(both_[1].node), 3);
    return both_[drawn < to_first_[state] ? 0 : 1];
  }

 private:
  struct Seen {
    bool rank, node;
    [[nodiscard]] constexpr bool has_rank(std::int32_t /*rank*/) const { return rank; }
    [[nodiscard]] constexpr bool has_node(std::int32_t /*node*/) const { return node; }
  };
  static constexpr std::uint32_t kStates = 16;

  CopyTables::Copy both_[2];
  std::uint64_t to_first_[kStates]{};
};

/// Calls use(choice, physical expert) for each of a token's experts, in any order. experts[choice]: each at most once;
/// −1 and other invalid experts are dropped. needed: initialised by with_needed().
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
