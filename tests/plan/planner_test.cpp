#include "plan/planner.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>

#include "bench/reference/plan.hpp"
#include "shunt/error.hpp"
#include "support/plan_ranks.hpp"
#include "support/random_case.hpp"

namespace shunt {
namespace {

using test::CaseLimits;
using test::RandomCase;

RandomCase two_ranks(PlanOptions options = {}) {
  return {Topology::single_node(2),
          ExpertMap::contiguous(4, 2),
          options,
          2,
          {{{3, 0, 0, 2, -1, -1}, {0.5f, 0.25f, 1, 2, 9, 9}}, {{0, 1, 2, 0}, {}}}};
}

void expect_as_reference(const RandomCase& all) {
  const auto plans = test::plan_ranks(all);
  const auto expected = reference_plans(all.routings(), all.map, all.topology, all.options);
  for (std::size_t rank = 0; rank < plans.size(); ++rank)
    ASSERT_EQ(difference(*plans[rank], expected[rank]), "") << "on rank " << rank;
}

TEST(ShufflePlan, EqualsTheReferenceOnThousandsOfRandomCases) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 generator(seed);
    expect_as_reference(test::random_case(generator));
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(ShufflePlan, EqualsTheReferenceWhateverTheSizes) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto up_to = [](std::int32_t most) { return *rc::gen::inRange(1, most + 1); };
    const CaseLimits limits{
        .ranks = up_to(8), .nodes = up_to(3), .experts = up_to(40), .topk = up_to(64), .tokens = up_to(9)};
    std::mt19937_64 generator(seed);
    const RandomCase all = test::random_case(generator, limits);
    const auto plans = test::plan_ranks(all);
    const auto expected = reference_plans(all.routings(), all.map, all.topology, all.options);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) RC_ASSERT(difference(*plans[rank], expected[rank]) == "");
  }));
}

// More ranks than bits in a word.
TEST(ShufflePlan, EqualsTheReferenceOnManyRanks) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 generator(seed);
    const std::int32_t ranks = 64 + static_cast<std::int32_t>(seed);
    const CaseLimits limits{.experts = 16, .topk = 6, .tokens = 2};
    expect_as_reference(test::random_case(generator, Topology::virtual_nodes(ranks, 1 + ranks / 8), limits));
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

// More tokens than a batch of copy choices.
TEST(ShufflePlan, EqualsTheReferenceOnManyTokens) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::mt19937_64 generator(seed);
    const CaseLimits limits{.experts = 12, .topk = 4, .tokens = 400};
    expect_as_reference(test::random_case(generator, Topology::virtual_nodes(3, 2), limits));
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(ShufflePlan, ABatchInTwoGivesTheSameCopies) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 generator(seed);
    RandomCase all = test::random_case(generator);
    all.options.layout = Layout::expert_major;
    all.options.capacity = PlanOptions::kUnlimited;
    const auto rows_of = [](const RandomCase& some) {
      std::vector<std::int64_t> rows;
      for (const auto& plan : test::plan_ranks(some)) {
        rows.insert(rows.end(), plan->traffic.sent_rows.begin(), plan->traffic.sent_rows.end());
        rows.insert(rows.end(), plan->expert_counts.begin(), plan->expert_counts.end());
      }
      return rows;
    };
    RandomCase first = all, second = all;
    for (std::size_t rank = 0; rank < all.ranks.size(); ++rank) {
      const std::size_t half = all.ranks[rank].experts.size() / static_cast<std::size_t>(all.topk) / 2;
      const auto cut = static_cast<std::ptrdiff_t>(half * static_cast<std::size_t>(all.topk));
      for (RandomCase* part : {&first, &second}) {
        const auto keep = [&](auto& values) {
          if (values.empty()) return;
          part == &first ? values.erase(values.begin() + cut, values.end())
                         : values.erase(values.begin(), values.begin() + cut);
        };
        keep(part->ranks[rank].experts);
        keep(part->ranks[rank].weights);
      }
    }
    const auto whole = rows_of(all), one = rows_of(first), two = rows_of(second);
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], one[i] + two[i]) << "seed " << seed;
  }
}

TEST(ShufflePlan, SlotsOfAnExpertAscendBySourceThenToken) {
  const auto plans = test::plan_ranks(two_ranks());
  // Expert 0 is on rank 0: tokens 0 and 1 of rank 0, then tokens 0 and 1 of rank 1.
  EXPECT_EQ(plans[0]->targets_of(0)[0].slot, Slot(0));
  EXPECT_EQ(plans[0]->targets_of(1)[0].slot, Slot(1));
  EXPECT_EQ(plans[1]->targets_of(0)[0].slot, Slot(2));
  EXPECT_EQ(plans[1]->targets_of(1)[0].slot, Slot(3));
}

TEST(ShufflePlan, TargetsCarryChoiceAndWeightOfTheirEntry) {
  const auto plans = test::plan_ranks(two_ranks());
  const auto targets = plans[0]->targets_of(0);
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_EQ(targets[0].choice, 1);
  EXPECT_EQ(targets[0].weight, 0.25f);
  EXPECT_EQ(targets[1].choice, 0);
  EXPECT_EQ(targets[1].weight, 0.5f);
  EXPECT_EQ(plans[1]->targets_of(0)[0].weight, 1.0f) << "no weights means ones";
}

TEST(ShufflePlan, DroppedEntriesHaveNoTarget) {
  const auto plans = test::plan_ranks(two_ranks());
  EXPECT_TRUE(plans[0]->targets_of(2).empty());
  EXPECT_EQ(plans[0]->num_dropped, 0) << "the router dropped them, not the plan";
}

TEST(ShufflePlan, TargetsFollowNodesBeforeRanks) {
  const RandomCase all{Topology::from_nodes({NodeId(1), NodeId(0), NodeId(1)}),
                       ExpertMap::contiguous(3, 3),
                       {},
                       3,
                       {{{0, 1, 2}, {}}, {}, {}}};
  const auto plans = test::plan_ranks(all);
  const auto targets = plans[0]->targets_of(0);
  ASSERT_EQ(targets.size(), 3u);
  EXPECT_EQ(std::tuple(targets[0].rank, targets[1].rank, targets[2].rank), std::tuple(RankId(1), RankId(0), RankId(2)));
}

TEST(ShufflePlan, AlignsEveryExpertAndTheEnd) {
  const auto plans = test::plan_ranks(two_ranks({.alignment = 8}));
  EXPECT_EQ(plans[0]->expert_offsets, (std::vector<std::int32_t>{0, 8, 16}));
  EXPECT_EQ(plans[0]->expert_counts, (std::vector<std::int32_t>{4, 1}));
  EXPECT_EQ(plans[0]->num_rows(), 16);
}

TEST(ShufflePlan, PaddedNeedsNoRound) {
  const RandomCase all = two_ranks({.layout = Layout::padded, .max_tokens = 5});
  const auto planners = test::make_planners(all);
  EXPECT_FALSE(planners[0].needs_round());
  const auto plans = test::plan_ranks(all);
  EXPECT_EQ(plans[0]->num_rows(), 2 * 2 * 5);
  EXPECT_EQ(plans[1]->targets_of(1)[0].slot, Slot(5 + 1)) << "second row of source 1 for expert 0";
  EXPECT_EQ(plans[1]->padded_send_counts, (std::vector<std::int32_t>{2, 1, 1, 0}));
}

/// Each node is a machine, on which ranks share two NICs.
Wiring one_host_per_node(const Topology& topology) {
  Wiring wiring;
  for (std::int32_t rank = 0; rank < topology.num_ranks(); ++rank) {
    const NodeId node = topology.node(RankId(rank));
    wiring.add(HostId(node.value), NicId(2 * node.value + rank % 2));
  }
  return wiring;
}

/// What the plans' forwarders must distribute: each source's flow, with the source's own targets, once per far node.
std::vector<InFlow> expected_in_flows(const std::vector<std::shared_ptr<PlanData>>& plans, RankId self) {
  std::vector<InFlow> expected;
  for (const auto& source : plans) {
    InFlow in{.source = source->self, .tokens = {}, .first_target = {0}, .targets = {}, .source_counts = {}};
    for (const OutFlow& out : source->out_flows) {
      if (out.forwarder != self) continue;
      in.tokens = out.tokens;
      for (const std::uint32_t token : out.tokens) {
        for (Target target : source->targets_of(token)) {
          if (source->topology.node(target.rank) != source->topology.node(self)) continue;
          target.choice = -1;
          if (target.closes == Closes::remote_node) target.closes = Closes::node;
          in.targets.push_back(target);
        }
        in.first_target.push_back(static_cast<std::uint32_t>(in.targets.size()));
      }
    }
    if (!in.tokens.empty()) expected.push_back(std::move(in));
  }
  return expected;
}

TEST(PlanBetweenMachines, EqualsThatOfOneMachineAndItsForwardersDistributeWhatSourcesSend) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 generator(seed);
    RandomCase all = test::random_case(generator);
    if (all.options.layout == Layout::padded) all.options.layout = Layout::expert_major;
    const Wiring wiring = one_host_per_node(all.topology);
    std::vector<Planner> planners;
    for (std::size_t rank = 0; rank < all.ranks.size(); ++rank)
      planners.emplace_back(all.routing(RankId(rank)), all.map, all.topology, RankId(rank), all.options,
                            EngineShape{.hidden = 16}, wiring);
    while (planners.front().needs_round()) {
      const auto proposals = test::proposals_of(planners);
      std::vector<std::size_t> num_for_far;
      for (const Planner& planner : planners) num_for_far.push_back(planner.bytes_for_far());
      for (std::size_t rank = 0; rank < planners.size(); ++rank) {
        auto seen = proposals;
        for (std::size_t from = 0; from < seen.size(); ++from)
          if (!wiring.are_near(RankId(from), RankId(rank))) seen[from].resize(num_for_far[from]);
        test::accept(planners[rank], seen);
      }
    }
    for (std::size_t from = 0; from < planners.size(); ++from)
      for (const Planner::FarList& list : planners[from].far_lists()) {
        Planner& to = planners[list.rank.index()];
        const auto senders = to.far_list_senders();
        ASSERT_TRUE(std::ranges::count(senders, RankId(from)) == 1) << "seed " << seed;
        ASSERT_LE(list.words.size() * sizeof(std::uint32_t), to.most_far_list_bytes(RankId(from)));
        to.accept_far_list(RankId(from), std::as_bytes(std::span(list.words)));
      }
    std::vector<std::shared_ptr<PlanData>> plans;
    for (Planner& planner : planners) plans.push_back(planner.finish());

    auto expected = reference_plans(all.routings(), all.map, all.topology, all.options);
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      expected[rank].in_flows = expected_in_flows(plans, RankId(rank));
      expected[rank].out_flows = plans[rank]->out_flows;  // balance_test covers the choice of forwarders
      expected[rank].traffic.heaviest_link = plans[rank]->traffic.heaviest_link;
      expected[rank].traffic.least_heaviest_link = plans[rank]->traffic.least_heaviest_link;
      ASSERT_EQ(difference(*plans[rank], expected[rank]), "") << "on rank " << rank << ", seed " << seed;
      for (std::int64_t token = 0; token < plans[rank]->num_tokens; ++token)
        for (const Target& target : plans[rank]->targets_of(token))
          ASSERT_EQ(std::ranges::count_if(plans[rank]->out_flows,
                                          [&](const OutFlow& out) {
                                            return all.topology.node(out.forwarder) == all.topology.node(target.rank) &&
                                                   std::ranges::count(out.tokens, token) == 1;
                                          }),
                    plans[rank]->is_near(target.rank) ? 0 : 1);
    }
  }
}

/// Memory allocated by the process; 0 if a sanitizer replaces malloc.
std::size_t allocated_bytes() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// A word per pair of ranks would be 64 MiB.
TEST(ShufflePlan, HoldsNothingPerPairOfRanks) {
  constexpr std::int32_t kRanks = 4096, kRanksPerNode = 8;
  constexpr RankId kSelf(kRanks / 2 + 3);
  const Topology topology = Topology::virtual_nodes(kRanks, kRanks / kRanksPerNode);
  const ExpertMap map = ExpertMap::contiguous(kRanks, kRanks);
  std::vector<std::int32_t> experts;  // the same on every rank
  for (std::int32_t entry = 0; entry < 64 * 8; ++entry) experts.push_back(entry * 37 % kRanks);
  Planner planner({experts, {}, 8}, map, topology, kSelf, {}, {.hidden = 16}, one_host_per_node(topology));

  std::vector<std::vector<std::byte>> proposals;
  const auto own = planner.proposal();
  for (std::int32_t rank = 0; rank < kRanks; ++rank) {
    auto& bytes = proposals.emplace_back(own.begin(), own.end());
    std::memcpy(bytes.data() + 3 * sizeof(std::uint32_t), &rank, sizeof(rank));  // the header's source
  }
  test::accept(planner, proposals);
  proposals = {};
  std::shared_ptr<PlanData> plan = planner.finish();
  planner = Planner({experts, {}, 8}, map, topology, kSelf, {}, {.hidden = 16});  // releases the other's state

  ASSERT_EQ(plan->targets.size(), experts.size());
  for (std::size_t entry = 0; entry < experts.size(); ++entry) {
    // Expert e is on rank e, its rows ascend by source, and each source has the same number of rows for it.
    const Target& target = plan->targets[entry];
    const auto of_expert = std::ranges::count(experts, target.rank.value);
    EXPECT_EQ(target.slot.value / of_expert, kSelf.value);
  }
  EXPECT_EQ(plan->traffic.rows, std::uint64_t{kRanks} * experts.size());
  const std::size_t before = allocated_bytes();
  plan.reset();
  EXPECT_LE(before - allocated_bytes(), std::size_t{1} << 20);
}

TEST(PlanHash, IsEqualOnAllRanks) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 generator(seed);
    const auto plans = test::plan_ranks(test::random_case(generator));
    for (const auto& plan : plans) ASSERT_EQ(plan->hash, plans[0]->hash) << "seed " << seed;
  }
}

TEST(PlanHash, DistinguishesCountsAndConfigurations) {
  const auto hash = [](const RandomCase& all, EngineShape shape = {.hidden = 16}) {
    return test::plan_ranks(all, shape)[0]->hash;
  };
  const std::uint64_t plain = hash(two_ranks());
  EXPECT_EQ(plain, hash(two_ranks()));
  RandomCase other = two_ranks();
  other.ranks[1].experts[1] = 3;
  EXPECT_NE(plain, hash(other)) << "counts";
  EXPECT_NE(plain, hash(two_ranks({.alignment = 2}))) << "options";
  EXPECT_NE(plain, hash(two_ranks(), {.hidden = 32})) << "shape";
  const PlanOptions padded{.layout = Layout::padded, .max_tokens = 5};
  RandomCase other_padded = other;
  other_padded.options = padded;
  EXPECT_EQ(hash(two_ranks(padded)), hash(other_padded)) << "padded knows no counts";
  EXPECT_NE(hash(two_ranks(padded)), hash(two_ranks({.layout = Layout::padded, .max_tokens = 6})));
}

}  // namespace
}  // namespace shunt
