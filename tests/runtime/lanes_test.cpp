// What has ended when a task starts, compared with all paths; and buffers that share memory.
#include "runtime/lanes.hpp"

#include <gtest/gtest.h>

#include <random>

#include "graph/model.hpp"
#include "graph/passes/pass.hpp"
#include "graph/program.hpp"
#include "graph/small_models.hpp"
#include "runtime/step_memory.hpp"

namespace shunt::runtime::test {
namespace {

using graph::Graph;
using graph::OpId;

/// Starts and ends of tasks, and which must precede which: a start its end; in the compute lane an end the next start,
/// in the comm lane a start the next start; what a task needs, its start.
class Events {
 public:
  Events(const Graph& graph, const Lanes& lanes) : before_(2 * graph.ops().size()) {
    const auto needs = graph::tasks_needed(graph);
    for (std::size_t op = 0; op < graph.ops().size(); ++op) {
      before_[end(OpId(op))].push_back(start(OpId(op)));
      for (const OpId need : needs[op]) before_[start(OpId(op))].push_back(end(need));
    }
    for (std::size_t i = 1; i < lanes.compute().size(); ++i)
      before_[start(lanes.compute()[i].op)].push_back(end(lanes.compute()[i - 1].op));
    for (std::size_t i = 1; i < lanes.comm().size(); ++i)
      before_[start(lanes.comm()[i].op)].push_back(start(lanes.comm()[i - 1].op));
  }

  /// By op: whether it has ended when `second` starts.
  [[nodiscard]] std::vector<bool> ended_before(OpId second) const {
    std::vector<bool> seen(before_.size());
    std::vector<std::size_t> next = {start(second)};
    while (!next.empty()) {
      const std::size_t event = next.back();
      next.pop_back();
      for (const std::size_t earlier : before_[event])
        if (!seen[earlier]) {
          seen[earlier] = true;
          next.push_back(earlier);
        }
    }
    std::vector<bool> ended;
    for (std::size_t op = 0; op < before_.size() / 2; ++op) ended.push_back(seen[end(OpId(op))]);
    return ended;
  }

 private:
  static std::size_t start(OpId op) { return 2 * op.index(); }
  static std::size_t end(OpId op) { return 2 * op.index() + 1; }

  std::vector<std::vector<std::size_t>> before_;
};

TEST(Lanes, KnowAllThatHasEndedAndNothingElse) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Graph step = graph::build_training_step(graph::test::model_of(graph::test::random_model(seed)), 2);
    Cluster cluster = Cluster::load("v100x2");
    cluster.tile = 2;
    const graph::CostModel cost(cluster);
    graph::PassContext context{.cost = cost, .notes = {}};
    for (const Graph& graph : {step, graph::all_passes()[0].apply(step, context)}) {
      const Lanes lanes(graph);
      const Events events(graph, lanes);
      for (std::size_t second = 0; second < graph.ops().size(); ++second) {
        const LaneTask* const later = lanes.task(OpId(second));
        if (!later) continue;
        const std::vector<bool> ended = events.ended_before(OpId(second));
        for (std::size_t first = 0; first < graph.ops().size(); ++first) {
          const LaneTask* const earlier = lanes.task(OpId(first));
          if (!earlier || first == second) continue;
          ASSERT_EQ(lanes.ends_before(*earlier, *later), ended[first]) << seed << ": " << first << ", " << second;
        }
      }
    }
  }
}

TEST(Arrangement, GivesBuffersThatOverlapInTimeTheirOwnBytesAndOthersTheSame) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> bytes;
    std::vector<std::pair<std::size_t, std::size_t>> lives;
    for (int i = 0; i < 40; ++i) {
      bytes.push_back(random() % 5 == 0 ? 0 : 1 + random() % 1000);
      const std::size_t begin = random() % 100;
      lives.emplace_back(begin, begin + random() % 20);
    }
    const auto overlap = [&](std::size_t a, std::size_t b) {
      return lives[a].first <= lives[b].second && lives[b].first <= lives[a].second;
    };
    const Arrangement made = arrange(bytes, overlap);
    std::size_t sum = 0;
    for (std::size_t a = 0; a < bytes.size(); ++a) {
      sum += bytes[a];
      EXPECT_LE(made.offsets[a] + bytes[a], made.bytes);
      EXPECT_EQ(made.offsets[a] % 64, 0u);
      for (std::size_t b = 0; b < a; ++b)
        if (bytes[a] > 0 && bytes[b] > 0 && overlap(a, b)) {
          EXPECT_TRUE(made.offsets[a] + bytes[a] <= made.offsets[b] || made.offsets[b] + bytes[b] <= made.offsets[a]);
        }
    }
    EXPECT_LT(made.bytes, sum / 2);
  }
}

}  // namespace
}  // namespace shunt::runtime::test
