#include "graph/split.hpp"

#include <gtest/gtest.h>

#include "graph/meaning.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/columns.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/small_models.hpp"
#include "graph/text.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"
#include "support/dice.hpp"

namespace shunt::graph {
namespace {

constexpr double kSplitTolerance = 1e-10;
constexpr std::uint64_t kSeeds = 60;

std::vector<Cut> random_cuts(const Blocks& blocks, std::int64_t batch, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  shunt::test::Dice dice(random);
  std::vector<Cut> cuts;
  for (std::int32_t begin = 0; begin < blocks.count;) {
    const std::int32_t end = dice.between(begin + 1, blocks.count);
    const auto most = static_cast<std::int32_t>(std::min<std::int64_t>(batch, 5));
    cuts.push_back({begin, end, dice.between(1, most), dice.pick({BackwardReach::shuffle, BackwardReach::range})});
    begin = end;
  }
  return cuts;
}

TEST(Split, KeepsTheMeaningOfEveryModelForAnyRanges) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
    const Blocks blocks = find_blocks(graph);
    const auto cuts = random_cuts(blocks, graph.dims[batch_of(graph)].size, seed);
    const SplitGraph cut = split(graph, parts_of_ops(graph, blocks, cuts));
    verify(cut.graph);
    test::expect_same_meaning(graph, cut.graph, kSplitTolerance, "seed " + std::to_string(seed));
  }
}

TEST(Split, CutsWeightGradientsByColumnsBitForBit) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
    const std::vector<bool> is_weight_gradient = weight_gradients(graph);
    std::vector<std::int32_t> pieces(graph.ops().size(), 1);
    std::size_t cut_ops = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!is_weight_gradient[i] || graph.op(OpId(i)).kind != OpKind::matmul) continue;
      pieces[i] = 2;
      ++cut_ops;
    }
    ASSERT_GT(cut_ops, 0u);
    const Graph cut = cut_columns(graph, pieces);
    verify(cut);
    EXPECT_GT(cut.ops().size(), graph.ops().size());
    test::expect_same_meaning(graph, cut, 0, "seed " + std::to_string(seed));
  }
}

TEST(Split, PassesCapacityFromPartToPart) {
  const Graph graph = build_training_step(test::model_of(test::small_models()[1]), 2);
  const Blocks blocks = find_blocks(graph);
  const SplitGraph cut = split(graph, parts_of_ops(graph, blocks, {{0, blocks.count, 4, BackwardReach::range}}));
  int limits = 0;
  for (const Op& op : cut.graph.ops()) {
    if (op.kind != OpKind::limit) continue;
    EXPECT_EQ(op.operands.size(), limits == 0 ? 1u : 2u);
    ++limits;
  }
  EXPECT_EQ(limits, 4);
  test::expect_same_meaning(graph, cut.graph, kSplitTolerance, "capacity");
}

TEST(Split, AddsUpBatchWideTermsBeforeTheirUse) {
  const Graph graph = build_training_step(Model::load("tiny", "none"), 2);
  const Blocks blocks = find_blocks(graph);
  const SplitGraph cut = split(graph, parts_of_ops(graph, blocks, {{0, blocks.count, 2, BackwardReach::range}}));
  int losses = 0;
  for (const Op& op : cut.graph.ops()) {
    if (op.kind != OpKind::balance_loss) continue;
    ++losses;
    for (const ValueId operand : op.operands) {
      const Op& reduction = cut.graph.op(cut.graph.value(operand).producer);
      ASSERT_EQ(reduction.kind, OpKind::all_reduce);
      EXPECT_EQ(cut.graph.op(cut.graph.value(reduction.operands[0]).producer).kind, OpKind::add);
    }
  }
  EXPECT_EQ(losses, 1);
}

/// Splits every op that can be split in two.
Graph halved(const Graph& graph) {
  std::vector<std::int32_t> parts;
  for (const Op& op : graph.ops()) parts.push_back(is_cut_by_batch(graph, op, batch_of(graph)) ? 2 : 1);
  return split(graph, parts).graph;
}

TEST(Split, LeavesRowsWholeWhoseTokensHaveNoBatch) {
  const Graph graph = parse(
      "graph g ranks 1\ndim B = 4 batch\ndim S = 3 sequence\ndim M = 2 feature\ndim X = 1 local_expert\n"
      "dim E = 1 expert\ndim K = 1 choice\ndim R = 3 rows of X\n"
      "%x = input() : f32[S,M] @forward\n%y = input() : f32[B,M] @forward\n%e = input() : i32[S,K] @forward\n"
      "%p = plan(%e) {expert=[E], rows=[R]} : plan[S,K,R] @forward\n%d = dispatch(%x, %p) : f32[M,R] @forward\n"
      "%a = map(%d) {fn=\"gelu\"} : f32[M,R] @forward\n%c = combine(%a, %p) : f32[S,M] @forward\n"
      "%z = matmul(%y, %c) {over=[M]} : f32[B,S] @forward\nreturn %z\n");
  const Graph cut = halved(graph);
  EXPECT_TRUE(is_split(cut));
  test::expect_same_meaning(graph, cut, kSplitTolerance, "plan without batch");
}

TEST(Split, LeavesOpaqueOpsWholeWhoseResultLacksTheBatch) {
  const Graph graph = parse(
      "graph g ranks 1\ndim B = 4 batch\ndim M = 2 feature\n%x = input() : f32[B,M] @forward\n"
      "%w = input() : f32[M] @forward\n%y = scale(%x) {by=2.0} : f32[B,M] @forward\n"
      "%s = opaque(%y, %w) {cost_us=1.0, name=\"sum\", split=[B]} : f32[M] @forward\nreturn %s\n");
  const Graph cut = halved(graph);
  EXPECT_TRUE(is_split(cut));
  test::expect_same_meaning(graph, cut, kSplitTolerance, "opaque");
}

TEST(Split, RefusesWhatCantBeCut) {
  const Graph graph = parse(
      "graph g ranks 1\ndim B = 4 batch\ndim M = 2 feature\n%x = input() : f32[B,M] @forward\n"
      "%y = opaque(%x) {cost_us=1.0, name=\"scan\"} : f32[B,M] @forward\nreturn %y\n");
  EXPECT_THROW(split(graph, {1, 2}), Error);
}

}  // namespace
}  // namespace shunt::graph
