#include "graph/passes/pass.hpp"

#include <gtest/gtest.h>

#include "graph/meaning.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/slow_cluster.hpp"
#include "graph/small_models.hpp"
#include "graph/text.hpp"
#include "graph/verify.hpp"
#include "shunt/error.hpp"

namespace shunt::graph {
namespace {

constexpr std::uint64_t kSeeds = 40;

class EveryPass : public testing::TestWithParam<std::size_t> {};

TEST_P(EveryPass, KeepsTheMeaningAndIsNeverSlowerThroughTheRunner) {
  const Pass& pass = all_passes()[GetParam()];
  std::size_t kept = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
    const CostModel cost(test::slow_cluster());
    PassContext context{.cost = cost, .interleaves_micro_batches = true, .dw_seconds = 0.01, .notes = {}};
    std::vector<PassReport> reports;
    const Graph changed = run_passes(
        graph, context, [&](std::string_view name) { return name == pass.name; }, reports);
    ASSERT_LE(evaluate(changed, cost).timeline.step_s, evaluate(graph, cost).timeline.step_s) << seed;
    kept += reports.at(0).is_kept && changed.hash() != graph.hash();
    const double tolerance = pass.name == "partition" || pass.name == "interleave" ? 1e-10 : 0;
    test::expect_same_meaning(graph, changed, tolerance, "seed " + std::to_string(seed));
  }
  EXPECT_GT(kept, 0u);
}

INSTANTIATE_TEST_SUITE_P(Passes, EveryPass, testing::Range(std::size_t{0}, all_passes().size()),
                         [](const auto& each) { return std::string(all_passes()[each.param].name); });

TEST(Passes, TogetherKeepTheMeaning) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
    const CostModel cost(test::slow_cluster());
    PassContext context{.cost = cost, .dw_seconds = 0.01, .notes = {}};
    std::vector<PassReport> reports;
    const Graph changed = run_passes(
        graph, context, [](std::string_view) { return true; }, reports);
    EXPECT_EQ(reports.size(), all_passes().size());
    test::expect_same_meaning(graph, changed, 1e-10, "seed " + std::to_string(seed));
    EXPECT_EQ(print(parse(print(changed))), print(changed));
  }
}

TEST(Passes, InterleaveMicroBatchesOnlyWhereTheModelAsks) {
  const Graph graph = build_training_step(Model::load("gpt2-s-moe", "v100"), 64);
  const CostModel cost(Cluster::load("v100x64"));
  for (const bool asks : {false, true}) {
    PassContext context{.cost = cost, .interleaves_micro_batches = asks, .notes = {}};
    std::vector<PassReport> reports;
    const Graph changed = run_passes(
        graph, context, [](std::string_view name) { return name == "interleave"; }, reports);
    // Some forward op of the second micro-batch follows a backward op of the first.
    bool backward_has_begun = false, is_interleaved = false;
    for (const Op& op : changed.ops()) {
      if (lane_of(op) == Lane::none) continue;
      backward_has_begun |= op.origin.phase == Phase::backward && op.origin.micro_batch == 0;
      is_interleaved |= backward_has_begun && op.origin.phase == Phase::forward && op.origin.micro_batch == 1;
    }
    EXPECT_EQ(is_interleaved, asks);
  }
}

TEST(Passes, AreSwitchedOffByName) {
  const Graph graph = build_training_step(Model::load("tiny", "none"), 2);
  const CostModel cost(test::slow_cluster());
  PassContext context{.cost = cost, .notes = {}};
  std::vector<PassReport> reports;
  EXPECT_EQ(print(run_passes(
                graph, context, [](std::string_view) { return false; }, reports)),
            print(graph));
  EXPECT_TRUE(reports.empty());
}

TEST(Passes, ObeyTheMemoryCapOrThrow) {
  const Graph graph = build_training_step(Model::load("gpt2-s-moe", "v100"), 64);
  const CostModel cost(Cluster::load("v100x64"));
  const Outcome before = evaluate(graph, cost);
  const auto scheduled = [&](std::int64_t cap) {
    PassContext context{.cost = cost, .memory_cap_bytes = cap, .dw_seconds = 0.1, .notes = {}};
    std::vector<PassReport> reports;
    return evaluate(run_passes(
                        graph, context, [](std::string_view) { return true; }, reports),
                    cost);
  };
  const Outcome capped = scheduled(before.memory.peak_bytes * 105 / 100);
  EXPECT_LE(capped.memory.peak_bytes, before.memory.peak_bytes * 105 / 100);
  EXPECT_LE(capped.timeline.exposed_all_to_all_s, before.timeline.exposed_all_to_all_s / 2);
  const Outcome tight = scheduled(before.memory.peak_bytes * 9 / 10);
  EXPECT_LE(tight.memory.peak_bytes, before.memory.peak_bytes * 9 / 10);
  EXPECT_THROW(scheduled(before.memory.peak_bytes / 10), Error);
}

TEST(Tutel, KeepsTheMeaningAndIsNeverSlower) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
    const CostModel cost(test::slow_cluster());
    const Tutel best = tutel(graph, cost);
    verify(best.graph);
    ASSERT_LE(best.outcome.timeline.step_s, evaluate(graph, cost).timeline.step_s);
    ASSERT_LE(best.apart_s, best.outcome.timeline.step_s * (1 + 1e-12));
    test::expect_same_meaning(graph, best.graph, 1e-10, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace shunt::graph
