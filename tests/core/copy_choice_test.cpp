#include "shunt/copy_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>

#include "bench/reference/copies.hpp"
#include "core/copy_choice.hpp"
#include "support/dice.hpp"
#include "support/random_case.hpp"

namespace shunt {
namespace {

using test::Dice;

std::vector<PhysicalId> copies_of(const CopyChoice& choice, RankId source, std::span<const std::int32_t> experts) {
  std::vector<PhysicalId> copies(experts.size());
  choice.choose(source, experts, copies);
  return copies;
}

/// By choice, the ranks that serve a token of rank `source`; −1 where dropped.
std::vector<std::int32_t> ranks_of(const ExpertMap& map, const Topology& topology, std::int32_t source,
                                   const std::vector<std::int32_t>& experts) {
  std::vector<std::int32_t> ranks;
  for (const PhysicalId copy : copies_of(CopyChoice(map, topology), RankId(source), experts))
    ranks.push_back(copy.valid() ? map.rank(copy).value : -1);
  return ranks;
}

using Ranks = std::vector<std::int32_t>;

/// Calls test(case, source, a token's experts) for tokens of many random maps and topologies, some of many ranks.
template <class Test>
void for_tokens(const Test& test) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    std::mt19937_64 generator(seed);
    Dice dice(generator);
    const std::int32_t ranks = seed % 4 == 0 ? dice.between(60, 90) : dice.between(1, 12);
    const Topology topology = Topology::virtual_nodes(ranks, dice.between(1, std::min(ranks, 9)));
    const test::RandomCase all = test::random_case(generator, topology, {.experts = 50, .topk = 16, .tokens = 4});
    const auto topk = static_cast<std::size_t>(all.topk);
    for (std::size_t rank = 0; rank < all.ranks.size(); ++rank)
      for (std::size_t first = 0; first < all.ranks[rank].experts.size(); first += topk)
        test(all, RankId(rank), std::span(all.ranks[rank].experts).subspan(first, topk));
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

TEST(CopyChoice, EqualsTheReference) {
  for_tokens([](const test::RandomCase& all, RankId source, std::span<const std::int32_t> experts) {
    ASSERT_EQ(copies_of(CopyChoice(all.map, all.topology), source, experts),
              reference_copies(all.map, all.topology, source, experts));
  });
}

TEST(CopyChoice, IsTheSameWithBitsAndWithLists) {
  for_tokens([](const test::RandomCase& all, RankId source, std::span<const std::int32_t> experts) {
    if (all.topology.num_ranks() > NeededBits::kMaxRanks) return;
    const CopyArrays arrays(all.map, all.topology);
    const auto choose = [&](auto needed) {
      std::array<std::int32_t, Routing::kMaxTopK> copies{};
      choose_copies(arrays.tables(), source.value, experts.data(), all.topk, needed,
                    [&](std::int32_t choice, std::int32_t copy) { copies[static_cast<std::size_t>(choice)] = copy; });
      return copies;
    };
    const std::int32_t node = all.topology.node(source).value;
    ASSERT_EQ(choose(NeededBits(node)), choose(NeededList(node)));
  });
}

TEST(CopyChoice, DoesNotDependOnTheOrderOfChoices) {
  std::mt19937_64 generator(1);
  for_tokens([&](const test::RandomCase& all, RankId source, std::span<const std::int32_t> experts) {
    const CopyChoice choice(all.map, all.topology);
    const auto copies = copies_of(choice, source, experts);
    const auto order = Dice(generator).permutation(all.topk);
    std::vector<std::int32_t> shuffled;
    for (const std::int32_t from : order) shuffled.push_back(experts[static_cast<std::size_t>(from)]);
    const auto shuffled_copies = copies_of(choice, source, shuffled);
    for (std::size_t i = 0; i < order.size(); ++i)
      ASSERT_EQ(shuffled_copies[i], copies[static_cast<std::size_t>(order[i])]);
  });
}

TEST(CopyChoice, ServesExpertsByTheirOwnCopies) {
  for_tokens([](const test::RandomCase& all, RankId source, std::span<const std::int32_t> experts) {
    const auto copies = copies_of(CopyChoice(all.map, all.topology), source, experts);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      ASSERT_EQ(copies[i].valid(), experts[i] != -1);
      ASSERT_TRUE(!copies[i].valid() || all.map.logical(copies[i]).value == experts[i]);
    }
  });
}

TEST(CopyChoice, AddsNoRankIfACopyIsOnAUsedOne) {
  for_tokens([](const test::RandomCase& all, RankId source, std::span<const std::int32_t> experts) {
    const auto copies = copies_of(CopyChoice(all.map, all.topology), source, experts);
    const auto all_copies = [&](PhysicalId copy) { return all.map.copies(all.map.logical(copy)); };
    std::set<RankId> needed;  // ranks of experts with one copy
    std::map<RankId, int> rows;
    for (const PhysicalId copy : copies) {
      if (!copy.valid()) continue;
      ++rows[all.map.rank(copy)];
      if (all_copies(copy).size() == 1) needed.insert(all.map.rank(copy));
    }
    for (const PhysicalId copy : copies) {
      if (!copy.valid() || all_copies(copy).size() == 1) continue;
      const auto is_needed = [&](PhysicalId other) { return needed.contains(all.map.rank(other)); };
      const bool could_join = std::ranges::any_of(all_copies(copy), is_needed);
      ASSERT_TRUE(!could_join || rows[all.map.rank(copy)] > 1) << "a rank for one expert alone";
    }
  });
}

// In the maps below, expert 0 is the one with copies.
TEST(CopyChoice, PrefersRanksThatAreUsedAnyway) {
  const auto map = ExpertMap::from_placement(4, {{0, 1}, {0, 2}, {0, 3}});
  const auto topology = Topology::single_node(3);
  EXPECT_EQ(ranks_of(map, topology, 0, {0, 2}), (Ranks{1, 1})) << "even before its own";
  EXPECT_EQ(ranks_of(map, topology, 0, {3, 0}), (Ranks{2, 2}));
  EXPECT_EQ(ranks_of(map, topology, 0, {3, -1, 0}), (Ranks{2, -1, 2}));
}

TEST(CopyChoice, PrefersRanksThatEarlierCopiesAdded) {
  // Expert 0 is on ranks 1 and 2, expert 1 on ranks 1, 2 and 3: the second follows the first.
  const auto map = ExpertMap::from_placement(12, {{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 1}, {0, 1}, {1}});
  for (std::int32_t other = 2; other < 12; ++other) {
    const Ranks ranks = ranks_of(map, Topology::single_node(4), 0, {0, 1, other});
    EXPECT_EQ(ranks[0], ranks[1]);
  }
}

TEST(CopyChoice, PrefersItsOwnRankToOthers) {
  const auto map = ExpertMap::from_placement(2, {{0}, {0}, {0}, {1}});
  for (std::int32_t source = 0; source < 3; ++source)
    EXPECT_EQ(ranks_of(map, Topology::single_node(4), source, {0, 1}), (Ranks{source, 3}));
}

TEST(CopyChoice, PrefersNodesThatAreUsed) {
  const auto map = ExpertMap::from_placement(3, {{1}, {0}, {2}, {0}, {0}, {}});
  const auto topology = Topology::virtual_nodes(6, 3);
  EXPECT_EQ(ranks_of(map, topology, 0, {0})[0], 1) << "the source's";
  for (std::int32_t source : {4, 5}) EXPECT_EQ(ranks_of(map, topology, source, {0})[0], 4) << "the source's";
  // Rank 2 is used, and so is node 1; node 0 is the source's: ranks 1 and 3 are equally good, rank 4 is worse.
  EXPECT_NE(ranks_of(map, topology, 0, {0, 2})[0], 4);
  const auto far = ExpertMap::from_placement(2, {{}, {}, {1}, {0}, {0}, {}});
  EXPECT_EQ(ranks_of(far, topology, 0, {0, 1})[0], 3) << "the node of another expert";
}

TEST(CopyChoice, EquallyGoodCopiesTakeLoadInProportionToTheirShares) {
  // Tokens of rank 0 have two of many experts there, and one that is on ranks 1, 2 and 3.
  std::vector<std::vector<ExpertId>> placement = {{}, {ExpertId(0)}, {ExpertId(0)}, {ExpertId(0)}};
  ExpertMap::Shares shares = {{}, {1}, {5}, {2}};
  constexpr std::int32_t kExperts = 200;
  for (std::int32_t expert = 1; expert < kExperts; ++expert) {
    placement[0].emplace_back(expert);
    shares[0].push_back(1);
  }
  const auto map = ExpertMap::from_placement(kExperts, placement, shares);
  const CopyChoice choice(map, Topology::single_node(4));
  std::array<int, 4> tokens{};
  for (std::int32_t a = 1; a < kExperts; ++a)
    for (std::int32_t b = a + 1; b < kExperts; ++b) {
      const std::array<std::int32_t, 3> experts = {0, a, b};
      ++tokens[map.rank(copies_of(choice, RankId(0), experts)[0]).index()];
    }
  const double all = kExperts * (kExperts - 1) / 2 - (kExperts - 1);
  EXPECT_NEAR(tokens[1] / all, 1 / 8.0, 0.01);
  EXPECT_NEAR(tokens[2] / all, 5 / 8.0, 0.01);
  EXPECT_NEAR(tokens[3] / all, 2 / 8.0, 0.01);
}

TEST(TwoCopies, ChooseAsTheGeneralRuleDoes) {
  std::mt19937_64 generator(1);
  Dice dice(generator);
  for (int i = 0; i < 2000; ++i) {
    const std::int32_t ranks = dice.between(2, 8), ranks_per_node = dice.between(1, ranks);
    const std::int32_t first = dice.between(0, ranks - 1), second = (first + dice.between(1, ranks - 1)) % ranks;
    const CopyTables::Copy both[2] = {{0, first, first / ranks_per_node, dice.between(1, 5)},
                                      {1, second, second / ranks_per_node, dice.between(1, 5)}};
    const std::int32_t source = dice.between(0, ranks - 1);
    NeededBits needed(source / ranks_per_node);
    for (int others = dice.between(0, 3); others > 0; --others) {
      const std::int32_t rank = dice.between(0, ranks - 1);
      needed.add(rank, rank / ranks_per_node);
    }
    // The draws around the first copy's bound, if both are equally good.
    const auto shares = static_cast<std::uint64_t>(both[0].share + both[1].share);
    const auto edge = static_cast<std::uint32_t>((static_cast<std::uint64_t>(both[0].share) << 32) / shares);
    for (const std::uint32_t drawn :
         {0u, edge - 1, edge, edge + 1, 0xffff'ffffu, static_cast<std::uint32_t>(generator())})
      ASSERT_EQ(TwoCopies(both, source).choose(drawn, needed).physical,
                choose_copy(both, 2, drawn, source, needed).physical)
          << "case " << i << ", drawn " << drawn;
  }
}

TEST(CopyChoice, ExpertsOfATokenAreDrawnIndependently) {
  // Experts 0 and 1 have their copies on ranks 0 to 3, no two on one rank: all four pairs occur equally often.
  std::vector<std::vector<ExpertId>> placement = {{ExpertId(0)}, {ExpertId(0)}, {ExpertId(1)}, {ExpertId(1)}, {}};
  constexpr std::int32_t kExperts = 4000;
  for (std::int32_t expert = 2; expert < kExperts; ++expert) placement[4].emplace_back(expert);
  const auto map = ExpertMap::from_placement(kExperts, placement);
  const CopyChoice choice(map, Topology::single_node(5));
  std::array<int, 4> pairs{};
  for (std::int32_t other = 2; other < kExperts; ++other) {
    const std::array<std::int32_t, 3> experts = {0, 1, other};
    const auto copies = copies_of(choice, RankId(4), experts);
    ++pairs[map.rank(copies[0]).index() * 2 + map.rank(copies[1]).index() - 2];
  }
  for (const int times : pairs) EXPECT_NEAR(times / double{kExperts}, 0.25, 0.03);
}

}  // namespace
}  // namespace shunt
