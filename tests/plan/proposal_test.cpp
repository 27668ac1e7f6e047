#include "plan/proposal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "core/fail.hpp"
#include "shunt/error.hpp"
#include "support/plan_ranks.hpp"

namespace shunt {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Proposals = std::vector<std::vector<std::byte>>;

// Rank 0 of two reads rank 1's proposals; three tokens, four experts.
test::RandomCase small_case(Layout layout, std::int64_t capacity = PlanOptions::kUnlimited) {
  return {Topology::virtual_nodes(2, 2),
          ExpertMap::contiguous(4, 2),
          {.layout = layout, .capacity = capacity},
          2,
          {{{0, 1, 2, 3, 0, 2}, {}}, {{0, 1, 1, 2, 3, 0}, {}}}};
}

// Rank 0's error for the proposals of the first round.
std::string answer(const test::RandomCase& all, const Proposals& proposals) {
  auto planners = test::make_planners(all);
  try {
    test::accept(planners[0], proposals);
    if (!planners[0].needs_round()) (void)planners[0].finish();
  } catch (const Error& error) {
    EXPECT_THAT(error.code(), AnyOf(ErrorCode::mismatch, ErrorCode::invalid_argument));
    return error.what();
  }
  return "accepted";
}

class Proposal : public ::testing::TestWithParam<Layout> {
 protected:
  test::RandomCase all_ = small_case(GetParam());
  Proposals proposals_ = test::proposals_of(test::make_planners(all_));
};
INSTANTIATE_TEST_SUITE_P(Layouts, Proposal, ::testing::Values(Layout::expert_major, Layout::token_unique),
                         [](const auto& layout) { return std::string(to_string(layout.param)); });

TEST_P(Proposal, TruncatedAnywhereIsRefused) {
  const auto whole = proposals_[1];
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A vector of its own, so that a sanitizer detects reads past the end.
    proposals_[1] = std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(answer(all_, proposals_), HasSubstr("plan: rank 1 sent rank 0")) << size << " bytes";
  }
}

TEST_P(Proposal, OversizedIsRefused) {
  for (const std::size_t more : {1, 4, 1000}) {
    auto longer = proposals_;
    longer[1].resize(longer[1].size() + more);
    EXPECT_THAT(answer(all_, longer), HasSubstr("plan: rank 1 sent rank 0 a proposal of"));
  }
}

TEST_P(Proposal, ForeignBytesAreRefused) {
  std::fill(proposals_[1].begin(), proposals_[1].end(), std::byte{0x5a});
  EXPECT_THAT(answer(all_, proposals_), HasSubstr("plan: rank 1 sent rank 0"));
  EXPECT_THAT(answer(all_, proposals_), HasSubstr("that are no proposal"));
}

TEST_P(Proposal, ErrorsNameItsSender) {
  std::fill(proposals_[1].begin(), proposals_[1].end(), std::byte{0x5a});
  auto planners = test::make_planners(all_);
  try {
    test::accept(planners[0], proposals_);
    FAIL() << "accepted foreign bytes";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.culprit(), RankId(1));
  }
}

TEST_P(Proposal, OfAnotherRankIsRefused) {
  proposals_[1] = proposals_[0];
  EXPECT_THAT(answer(all_, proposals_), HasSubstr("rank 1 sent rank 0 a proposal of rank 0"));
}

TEST_P(Proposal, AlteredByteIsRefusedOrGivesAPlanWithinItsBounds) {
  for (std::size_t at = 0; at < proposals_[1].size(); ++at)
    for (const int flip : {0x01, 0x02, 0x80, 0xff}) {
      auto altered = proposals_;
      altered[1][at] ^= static_cast<std::byte>(flip);
      auto planners = test::make_planners(all_);
      try {
        test::accept(planners[0], altered);
        const auto plan = planners[0].finish();
        for (const Target& target : plan->targets)
          ASSERT_LT(target.slot.value, plan->rows_of_rank[target.rank.index()]);
      } catch (const PeerError& error) {
        EXPECT_EQ(error.culprit(), RankId(1)) << "byte " << at;
      } catch (const Error& error) {  // the damage may look like other options, and either rank's may be wrong
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 has"), HasSubstr("rank 0 has"))) << "byte " << at;
      }
    }
}

TEST_P(Proposal, OwnBytesAreNotReadBackFromSharedMemory) {
  std::fill(proposals_[0].begin(), proposals_[0].end(), std::byte{0});
  EXPECT_EQ(answer(all_, proposals_), "accepted");
}

TEST(ProposalCounts, ThatContradictEachOtherAreRefused) {
  const auto all = small_case(Layout::expert_major);
  auto proposals = test::proposals_of(test::make_planners(all));
  proposals[1].back() = std::byte{1};  // the high byte of the routed tokens
  EXPECT_THAT(answer(all, proposals), HasSubstr("rank 1 sent rank 0 counts that contradict each other"));
}

TEST(ProposalRound, SecondRoundCarriesWhatTheFirstGranted) {
  const auto all = small_case(Layout::expert_major, 2);
  auto planners = test::make_planners(all);
  const auto first = test::proposals_of(planners);
  for (Planner& planner : planners) test::accept(planner, first);
  auto second = test::proposals_of(planners);
  second[1] = first[1];
  try {
    test::accept(planners[0], second);
    FAIL() << "accepted a proposal of another round";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 is in round 0, rank 0 in round 1"));
  }
}

TEST(ProposalRound, MoreRowsThanGrantedAreRefused) {
  const auto limited = small_case(Layout::expert_major, 2);
  auto planners = test::make_planners(limited);
  auto first = test::proposals_of(planners);
  test::accept(planners[0], first);
  // Rank 1 receives counts of an idle rank 0 and therefore keeps its rows for expert 0.
  auto idle = limited;
  idle.ranks[0].experts.assign(6, -1);
  const auto idle_planners = test::make_planners(idle);
  const auto misled = test::proposals_of(idle_planners);
  test::accept(planners[1], misled);
  try {
    test::accept(planners[0], test::proposals_of(planners));
    FAIL() << "accepted more rows than granted";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.culprit(), RankId(1));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 keeps 2 rows for physical expert 0, rank 0 grants it 0"));
  }
}

void damage(std::vector<std::byte>& bytes, std::mt19937_64& generator) {
  for (auto left = generator() % 6; left > 0; --left) bytes[generator() % bytes.size()] = std::byte(generator() % 256);
  if (generator() % 4 == 0) bytes.resize(generator() % (2 * bytes.size()));
}

TEST(ProposalFuzz, RandomDamageInAnyRoundIsRefusedOrGivesAPlan) {
  std::mt19937_64 generator(7);
  for (int i = 0; i < 3000; ++i) {
    const auto all = test::random_case(generator, {.ranks = 4, .experts = 12, .topk = 6, .tokens = 6});
    auto planners = test::make_planners(all);
    const auto damaged_round = generator() % 2;
    try {
      for (std::uint64_t round = 0; planners[0].needs_round(); ++round) {
        auto proposals = test::proposals_of(planners);
        if (round == damaged_round) damage(proposals.back(), generator);
        for (Planner& planner : planners) test::accept(planner, proposals);
      }
      for (Planner& planner : planners) EXPECT_NE(planner.finish(), nullptr);
    } catch (const Error& error) {
      EXPECT_THAT(error.code(), AnyOf(ErrorCode::mismatch, ErrorCode::invalid_argument)) << error.what();
    }
  }
}

}  // namespace
}  // namespace shunt
