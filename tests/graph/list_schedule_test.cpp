#include "graph/list_schedule.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "graph/passes/blocks.hpp"
#include "graph/passes/pipeline.hpp"
#include "graph/passes/range_costs.hpp"
#include "graph/slow_cluster.hpp"
#include "graph/small_models.hpp"
#include "graph/text.hpp"

namespace shunt::graph {
namespace {

constexpr std::uint64_t kSeeds = 30;

/// A random model's step in two parts.
SplitGraph random_step(std::uint64_t seed) {
  const Graph graph = build_training_step(test::model_of(test::random_model(seed)), 2);
  const Blocks blocks = find_blocks(graph);
  return split(graph, parts_of_ops(graph, blocks, {{0, blocks.count, 2, BackwardReach::range}}));
}

std::vector<TaskId> everything(const Program& program) {
  std::vector<TaskId> all(program.tasks.size());
  std::iota(all.begin(), all.end(), TaskId{0});
  return all;
}

TEST(Justification, KeepsDependenciesAndIsUsuallyShorter) {
  const CostModel cost(test::slow_cluster());
  std::size_t shorter = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const SplitGraph step = random_step(seed);
    const Program program = make_program(step.graph, cost);
    const ListSchedule first =
        list_schedule(program, cost.cluster(), pipeline_priorities(step, program, 1), everything(program));
    const ListSchedule second = justified(program, cost.cluster(), std::vector<bool>(program.tasks.size()), first);
    ASSERT_EQ(second.order.size(), program.tasks.size());
    std::vector<bool> has_begun(program.tasks.size());
    for (const TaskId task : second.order) {
      ASSERT_FALSE(has_begun[task]);
      for (const TaskId need : program.tasks[task].needs) ASSERT_TRUE(has_begun[need]) << "seed " << seed;
      has_begun[task] = true;
    }
    shorter += second.makespan_s < first.makespan_s;
  }
  EXPECT_GT(shorter, kSeeds / 2);
}

TEST(Compaction, IsNeverSlowerAndAgreesWithSimulation) {
  const CostModel cost(test::slow_cluster());
  const PassContext context{.cost = cost, .notes = {}};
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Graph graph = random_step(seed).graph;
    const Program program = make_program(graph, cost);
    const Ordered made = compacted(graph, program, everything(program), context);
    const Outcome simulated = evaluate(made.graph, cost);
    ASSERT_LE(made.outcome.timeline.step_s, evaluate(graph, cost).timeline.step_s);
    ASSERT_EQ(made.outcome.timeline.step_s, simulated.timeline.step_s);
    ASSERT_EQ(made.outcome.memory.peak_bytes, simulated.memory.peak_bytes);
  }
}

}  // namespace
}  // namespace shunt::graph
