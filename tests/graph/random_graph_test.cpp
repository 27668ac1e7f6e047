// Properties of models that must hold for any graph.
#include "graph/random_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "graph/finite_differences.hpp"
#include "graph/meaning.hpp"
#include "graph/passes/columns.hpp"
#include "graph/passes/pass.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/slow_cluster.hpp"
#include "graph/split.hpp"
#include "graph/text.hpp"
#include "graph/verify.hpp"
#include "support/dice.hpp"

namespace shunt::graph {
namespace {

constexpr std::uint64_t kSeeds = 300;
constexpr double kSplitTolerance = 1e-10;

/// Failures name the seed, also those by exceptions.
void for_each_step(const std::function<void(const test::RandomStep&, std::uint64_t)>& claim) {
  for (std::uint64_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    try {
      claim(test::random_step(seed), seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

// Ensures that the tests below cover all ops.
TEST(RandomGraph, UsesEveryOpThatIsNotMadeBySplitting) {
  std::set<OpKind> seen;
  for_each_step([&](const test::RandomStep& made, std::uint64_t) {
    for (const Op& op : made.step.ops()) seen.insert(op.kind);
  });
  for (const OpInfo& op : op_table())
    EXPECT_EQ(seen.contains(op.kind), op.kind != OpKind::part && op.kind != OpKind::join) << op.name;
}

TEST(RandomGraph, LacksWhatPassesLookFor) {
  int without_batch = 0, without_plan = 0, with_plan_but_no_batch = 0, with_shared_tokens = 0, with_unread_rows = 0;
  for_each_step([&](const test::RandomStep& made, std::uint64_t) {
    std::multiset<ValueId> planned;
    std::set<ValueId> read;
    for (const Op& op : made.step.ops()) {
      if (op.kind == OpKind::plan) planned.insert(op.operands[0]);
      read.insert(op.operands.begin(), op.operands.end());
    }
    const bool has_batch = find_batch(made.step).has_value();
    without_batch += !has_batch;
    without_plan += planned.empty();
    with_plan_but_no_batch += !planned.empty() && !has_batch;
    with_shared_tokens += std::any_of(planned.begin(), planned.end(), [&](ValueId v) { return planned.count(v) > 1; });
    with_unread_rows += std::any_of(made.step.ops().begin(), made.step.ops().end(), [&](const Op& op) {
      return op.kind == OpKind::dispatch && !read.contains(op.results[0]);
    });
  });
  for (const int count : {without_batch, without_plan, with_plan_but_no_batch, with_shared_tokens, with_unread_rows})
    EXPECT_GE(count, 5);
}

TEST(RandomGraph, IsVerifiedAndPrintsAndParsesBackToItself) {
  for_each_step([](const test::RandomStep& made, std::uint64_t) {
    verify(made.step);
    const std::string text = print(made.step);
    const Graph again = parse(text);
    EXPECT_EQ(print(again), text);
    EXPECT_EQ(again.hash(), made.step.hash());
  });
}

TEST(RandomGraph, HasGradientsThatAgreeWithFiniteDifferences) {
  for_each_step([](const test::RandomStep& made, std::uint64_t seed) {
    test::expect_finite_differences(made.forward, made.backward, made.gradients, seed);
  });
}

/// Equal numbers of parts for ops that touch rows, random ones for all others.
std::vector<std::int32_t> random_parts(const Graph& graph, DimId batch, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  shunt::test::Dice dice(random);
  const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(graph.dims[batch].size, 4));
  const std::int32_t of_rows = dice.between(1, static_cast<std::int32_t>(std::min<std::int64_t>(most_parts(graph), 4)));
  std::vector<std::int32_t> parts;
  for (const Op& op : graph.ops()) {
    const bool can = is_cut_by_batch(graph, op, batch);
    parts.push_back(!can ? 1 : touches_rows(graph, op) ? of_rows : dice.between(1, most));
  }
  return parts;
}

TEST(RandomGraph, KeepsItsMeaningWhereverItIsCut) {
  std::size_t changes = 0;
  for_each_step([&](const test::RandomStep& made, std::uint64_t seed) {
    const auto batch = find_batch(made.step);
    if (!batch) return;
    const Graph cut = split(made.step, random_parts(made.step, *batch, seed)).graph;
    verify(cut);
    changes += cut.hash() != made.step.hash();
    test::expect_same_meaning(made.step, cut, kSplitTolerance, "cut");
  });
  EXPECT_GT(changes, kSeeds / 3);
}

TEST(RandomGraph, KeepsItsMeaningBitForBitWhereWeightGradientsAreCutByColumns) {
  std::size_t changes = 0;
  for_each_step([&](const test::RandomStep& made, std::uint64_t) {
    const Graph cut = cut_columns(made.step, pieces_for(made.step, CostModel(test::slow_cluster()), 1e-9));
    verify(cut);
    changes += cut.hash() != made.step.hash();
    test::expect_same_meaning(made.step, cut, 0, "columns");
  });
  EXPECT_GT(changes, kSeeds / 10);
}

class AnyPass : public testing::TestWithParam<std::size_t> {};

TEST_P(AnyPass, KeepsTheMeaningOfRandomGraphsEvenWhereItsResultIsDropped) {
  const Pass& pass = all_passes()[GetParam()];
  const double tolerance = pass.name == "partition" || pass.name == "interleave" ? kSplitTolerance : 0;
  std::size_t changes = 0;
  for_each_step([&](const test::RandomStep& made, std::uint64_t) {
    const CostModel cost(test::slow_cluster());
    PassContext context{.cost = cost, .interleaves_micro_batches = true, .dw_seconds = 0.01, .notes = {}};
    const Graph changed = pass.apply(made.step, context);
    verify(changed);
    changes += changed.hash() != made.step.hash();
    test::expect_same_meaning(made.step, changed, tolerance, std::string(pass.name));
  });
  EXPECT_GT(changes, 0u);
}

INSTANTIATE_TEST_SUITE_P(Passes, AnyPass, testing::Range(std::size_t{0}, all_passes().size()),
                         [](const auto& each) { return std::string(all_passes()[each.param].name); });

TEST(RandomGraph, KeepsItsMeaningThroughTutelAndIsNeverSlower) {
  std::size_t changes = 0;
  for_each_step([&](const test::RandomStep& made, std::uint64_t) {
    const CostModel cost(test::slow_cluster());
    const Graph changed = tutel(made.step, cost).graph;
    verify(changed);
    EXPECT_LE(evaluate(changed, cost).timeline.step_s, evaluate(made.step, cost).timeline.step_s);
    changes += changed.hash() != made.step.hash();
    test::expect_same_meaning(made.step, changed, kSplitTolerance, "tutel");
  });
  EXPECT_GT(changes, 0u);
}

TEST(RandomGraph, KeepsItsMeaningThroughAllPassesAndIsNeverSlower) {
  for_each_step([](const test::RandomStep& made, std::uint64_t seed) {
    const CostModel cost(test::slow_cluster());
    PassContext context{.cost = cost, .interleaves_micro_batches = seed % 2 == 0, .dw_seconds = 0.01, .notes = {}};
    std::vector<PassReport> reports;
    const Graph changed = run_passes(
        made.step, context, [](std::string_view) { return true; }, reports);
    test::expect_same_meaning(made.step, changed, kSplitTolerance, "all");
    for (const PassReport& report : reports)
      if (report.is_kept) {
        EXPECT_LE(report.step_after_s, report.step_before_s) << report.name;
      }
    EXPECT_LE(evaluate(changed, cost).timeline.step_s, evaluate(made.step, cost).timeline.step_s);
    EXPECT_EQ(print(parse(print(changed))), print(changed));
  });
}

}  // namespace
}  // namespace shunt::graph
