// The rule by which copies are chosen, for hosts and devices alike (constexpr functions are both). What the rule is
// for: include/shunt/copy_choice.hpp.
#pragma once

#include <cstdint>

namespace shunt {

/// An expert map and its topology as arrays.
struct CopyTables {
  std::int32_t num_experts;
  const std::int32_t* only_copy;     ///< [experts]: physical; −1 where there are several
  const std::int32_t* copies_begin;  ///< [experts + 1]
  const std::int32_t* copies;        ///< physical experts, by logical expert, then rank
  const std::int32_t* rank_of;       ///< [physical experts]
  const std::int32_t* share_of;      ///< [physical experts]
  const std::int32_t* node_of;       ///< [ranks]
};

/// Spreads close numbers over 32 bits (the finaliser of MurmurHash3).
constexpr std::uint32_t spread_bits(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 0x85ebca6bu;
  value = (value ^ (value >> 13)) * 0xc2b2ae35u;
  return value ^ (value >> 16);
}

/// Of experts in any order: the sum over them.
constexpr std::uint32_t hash_of_expert(std::int32_t expert) {
  return spread_bits(static_cast<std::uint32_t>(expert) + 0x9e3779b9u);
}

/// The copy of an expert that has several. `hash` is that of all experts of the token.
template <class Needed>
constexpr std::int32_t choose_copy(const CopyTables& map, std::int32_t expert, std::uint32_t hash, std::int32_t source,
                                   const Needed& needed) {
  const auto detour = [&](std::int32_t copy) {
    const std::int32_t rank = map.rank_of[copy];
    if (needed.has_rank(rank)) return 0;
    if (rank == source) return 1;
    return needed.has_node(map.node_of[rank]) ? 2 : 3;
  };
  const std::int32_t begin = map.copies_begin[expert], end = map.copies_begin[expert + 1];
  int least = 4;
  std::uint32_t shares = 0;
  for (std::int32_t i = begin; i < end; ++i) {
    const int each = detour(map.copies[i]);
    if (each > least) continue;
    if (each < least) shares = 0;
    least = each;
    shares += static_cast<std::uint32_t>(map.share_of[map.copies[i]]);
  }
  const std::uint64_t drawn = spread_bits(hash + static_cast<std::uint32_t>(expert));
  auto turn = static_cast<std::int64_t>(drawn * shares >> 32);
  for (std::int32_t i = begin; i < end; ++i) {
    if (detour(map.copies[i]) != least) continue;
    turn -= map.share_of[map.copies[i]];
    if (turn < 0) return map.copies[i];
  }
  return map.copies[begin];  // not reached: turn is less than the sum of shares
}

/// copies[choice] of a token's experts; −1 for experts that are dropped or don't exist. `needed` holds the source's
/// node and nothing else at first.
template <class Needed>
constexpr void choose_copies(const CopyTables& map, std::int32_t source, const std::int32_t* experts, std::int32_t topk,
                             Needed& needed, std::int32_t* copies) {
  constexpr std::int32_t kUndecided = -2;
  std::uint32_t hash = 0;
  std::int32_t undecided = 0;
  for (std::int32_t choice = 0; choice < topk; ++choice) {
    const std::int32_t expert = experts[choice];
    copies[choice] = -1;
    if (expert < 0 || expert >= map.num_experts) continue;
    hash += hash_of_expert(expert);
    copies[choice] = map.only_copy[expert];
    if (copies[choice] >= 0) {
      needed.add(map.rank_of[copies[choice]]);
    } else {
      copies[choice] = kUndecided;
      ++undecided;
    }
  }
  for (; undecided > 0; --undecided) {
    std::int32_t next = -1;
    for (std::int32_t choice = 0; choice < topk; ++choice)
      if (copies[choice] == kUndecided && (next < 0 || experts[choice] < experts[next])) next = choice;
    copies[next] = choose_copy(map, experts[next], hash, source, needed);
    needed.add(map.rank_of[copies[next]]);
  }
}

}  // namespace shunt
