#include "graph/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "graph/model.hpp"
#include "graph/text.hpp"

namespace shunt::graph {
namespace {

/// One node of two ranks; a byte takes a nanosecond on the near link, and nothing else takes time.
Cluster plain_cluster() {
  Cluster cluster = Cluster::load("v100x2");
  cluster.near_bytes_per_s = 1e9;
  cluster.kernel_s = cluster.all_to_all_s = cluster.all_reduce_s = 0;
  cluster.compute_slowdown = 1;
  return cluster;
}

Graph step(const std::string& ops) {
  return parse("graph g ranks 2\ndim B = 1000 batch\ndim M = 1 feature\n%x = input() : f32[B,M] @forward\n" + ops);
}

// All-reduces of [B,M] f32 between two ranks move 4000 bytes: 4 us on the near link.
constexpr double kUs = 1e-6;

TEST(Simulation, CountsCommunicationAsExposedOnlyWhileComputeIdles) {
  const Graph graph = step(
      "%a = opaque(%x) {cost_us=1.0, name=\"a\"} : f32[B,M] @backward\n"
      "%r = all_reduce(%a) : f32[B,M] @backward\n"
      "%b = opaque(%x) {cost_us=3.0, name=\"b\"} : f32[B,M] @backward\n"
      "%c = opaque(%r, %b) {cost_us=2.0, name=\"c\"} : f32[B,M] @backward\nreturn %c\n");
  const Timeline timeline = simulate(make_program(graph, CostModel(plain_cluster())), plain_cluster());
  EXPECT_NEAR(timeline.step_s, 7 * kUs, 1e-12);
  EXPECT_NEAR(timeline.compute_s, 6 * kUs, 1e-12);
  EXPECT_NEAR(timeline.exposed_all_reduce_s, 1 * kUs, 1e-12);
  EXPECT_EQ(timeline.exposed_all_to_all_s, 0);
  EXPECT_EQ(timeline.critical_path, (std::vector<TaskId>{0, 1, 3}));
}

TEST(Simulation, SlowsComputeDownBesideCommunication) {
  Cluster cluster = plain_cluster();
  cluster.compute_slowdown = 2;
  const Graph graph = step(
      "%u = input() : f32[B,M] @forward\n%r = all_reduce(%u) : f32[B,M] @backward\n"
      "%b = opaque(%x) {cost_us=3.0, name=\"b\"} : f32[B,M] @backward\nreturn %r, %b\n");
  const Timeline timeline = simulate(make_program(graph, CostModel(cluster)), cluster);
  EXPECT_NEAR(timeline.step_s, 5 * kUs, 1e-12);  // 4 us at half speed, then 1 us alone
  EXPECT_NEAR(timeline.compute_s, 5 * kUs, 1e-12);
}

TEST(Simulation, TransfersShareALinkEvenly) {
  const Graph graph = step(
      "%u = input() : f32[B,M] @forward\n%v = input() : f32[B,M] @forward\n%w = input() : f32[B,M] @forward\n"
      "%r = all_reduce(%u) : f32[B,M] @backward\n%s = all_reduce(%v) : f32[B,M] @backward\n"
      "%t = all_reduce(%w) : f32[B,M] @backward\nreturn %r, %s, %t\n");
  const Program program = make_program(graph, CostModel(plain_cluster()));
  const Timeline timeline = simulate(program, plain_cluster());
  EXPECT_NEAR(timeline.spans[0].end_s, 8 * kUs, 1e-12);
  EXPECT_NEAR(timeline.spans[1].end_s, 8 * kUs, 1e-12);
  EXPECT_NEAR(timeline.spans[2].begin_s, 8 * kUs, 1e-12) << "there are two workers";
  EXPECT_NEAR(timeline.step_s, 12 * kUs, 1e-12);
  EXPECT_NEAR(least_step_s(program), 12 * kUs, 1e-12);
  EXPECT_NEAR(timeline.near_s, 12 * kUs, 1e-12);
  EXPECT_EQ(timeline.far_s, 0);
}

TEST(Simulation, LanesRunInProgramOrder) {
  const Graph graph = step(
      "%u = input() : f32[B,M] @forward\n%a = opaque(%x) {cost_us=2.0, name=\"a\"} : f32[B,M] @backward\n"
      "%r = all_reduce(%a) : f32[B,M] @backward\n%s = all_reduce(%u) : f32[B,M] @backward\nreturn %r, %s\n");
  const Timeline timeline = simulate(make_program(graph, CostModel(plain_cluster())), plain_cluster());
  EXPECT_NEAR(timeline.spans[2].begin_s, 2 * kUs, 1e-12) << "posted behind the first, though ready at once";
}

TEST(Simulation, ALatePeerIsNeitherCommunicationNorCompute) {
  class Skewed : public ShuffleVolume {
   public:
    [[nodiscard]] ShuffleRows rows(const ShufflePart& part) const override {
      const auto mean = static_cast<double>(part.tokens * part.topk);
      return {mean / 2, 0, 3 * mean, mean};
    }
  } volume;
  const Graph graph = build_training_step(Model::load("tiny", "v100"), 2);
  const Cluster cluster = Cluster::load("v100x2");
  const Timeline even = simulate(make_program(graph, CostModel(cluster)), cluster);
  const Timeline skewed = simulate(make_program(graph, CostModel(cluster, {.volume = &volume})), cluster);
  EXPECT_EQ(even.late_peer_s, 0);
  EXPECT_GT(skewed.late_peer_s, 0);
  EXPECT_GT(skewed.step_s, even.step_s);
}

TEST(Memory, AValueLivesUntilItsLastUserEnds) {
  const Graph graph = step(
      "%a = opaque(%x) {cost_us=1.0, name=\"a\"} : f32[B,M] @forward\n"
      "%b = opaque(%a) {cost_us=1.0, name=\"b\"} : f32[B,M] @forward\n"
      "%v = rename(%b) {from=[], to=[]} : f32[B,M] @forward\n"
      "%c = opaque(%b) {cost_us=1.0, name=\"c\"} : f32[] @forward\n"
      "%d = opaque(%v) {cost_us=1.0, name=\"d\"} : f32[B,M] @forward\nreturn %c\n");
  const Program program = make_program(graph, CostModel(plain_cluster()));
  const Memory memory = memory_of(graph, program, simulate(program, plain_cluster()));
  EXPECT_EQ(memory.fixed_bytes, 4000);
  EXPECT_EQ(memory.peak_bytes, 8004) << "a and b; later b, c and d, as the view keeps b";
}

TEST(Trace, HoldsEveryTaskOnItsLane) {
  const Graph graph = build_training_step(Model::load("tiny", "v100"), 8);
  const Cluster cluster = Cluster::load("v100x8");
  const Program program = make_program(graph, CostModel(cluster));
  const auto trace = nlohmann::json::parse(chrome_trace(graph, program, simulate(program, cluster)));
  std::size_t tasks = 0;
  std::map<int, std::vector<std::pair<double, double>>> spans;  // by track
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ++tasks;
    EXPECT_GE(event["dur"].get<double>(), 0);
    const bool is_comm = event["cat"] == "dispatch" || event["cat"] == "combine" || event["cat"] == "combine_dx" ||
                         event["cat"] == "plan" || event["cat"] == "all_reduce";
    EXPECT_EQ(event["tid"] != 0, is_comm);
    spans[event["tid"]].emplace_back(event["ts"], event["ts"].get<double>() + event["dur"].get<double>());
  }
  EXPECT_EQ(tasks, program.tasks.size());
  EXPECT_EQ(spans.size(), 3u) << "compute, and two transfers at a time";
  for (auto& [track, all] : spans) {
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i) EXPECT_LE(all[i - 1].second, all[i].first + 1e-6) << track;
  }
}

}  // namespace
}  // namespace shunt::graph
