// Required properties of the presets' schedules.
#include "graph/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/text.hpp"
#include "shunt/error.hpp"

namespace shunt::graph {
namespace {

/// A row of docs/schedule.md: by how many per cent the exposed all-to-all time is lower than in before and in tutel,
/// and how many times as fast as before the step is.
struct Documented {
  double less_than_before, less_than_tutel, speedup;
};

struct Case {
  std::string model, cluster;
  Documented assumed, measured;
};

void expect_documented(const Schedule& schedule, const Documented& documented) {
  const auto exposed = [](const Outcome& outcome) { return outcome.timeline.exposed_all_to_all_s; };
  const auto less_than = [&](const Outcome& other) { return 100 * (1 - exposed(schedule.after) / exposed(other)); };
  EXPECT_NEAR(less_than(schedule.before), documented.less_than_before, 0.1);
  EXPECT_NEAR(less_than(schedule.tutel), documented.less_than_tutel, 0.1);
  EXPECT_NEAR(schedule.before.timeline.step_s / schedule.after.timeline.step_s, documented.speedup, 0.01);
}

void PrintTo(const Case& each, std::ostream* out) { *out << each.model << " on " << each.cluster; }

class Presets : public testing::TestWithParam<Case> {};

TEST_P(Presets, HideAsMuchOfTheShuffleAsTheDocsSay) {
  const Cluster cluster = Cluster::load(GetParam().cluster);
  const CostModel cost(cluster);
  const Schedule schedule = make_schedule(Model::load(GetParam().model, cluster.device), cost, {});
  expect_documented(schedule, GetParam().assumed);
  EXPECT_LE(schedule.after.timeline.exposed_s(), 0.08 * schedule.tutel.timeline.exposed_s());
  EXPECT_LE(schedule.tutel.timeline.step_s, schedule.before.timeline.step_s);
  EXPECT_GE(schedule.after.step_gap(), 0);
  EXPECT_LE(schedule.dw_gap, 0.01);
  if (cluster.device == "v100") {
    // The paper reports 38 to 45 %; docs/schedule.md explains why the large model is below that.
    EXPECT_GE(schedule.step_share, GetParam().model == "gpt2-s-moe" ? 0.38 : 0.36);
    EXPECT_LE(schedule.step_share, 0.45);
  }
  EXPECT_EQ(parse(print(schedule.graph)).hash(), schedule.graph.hash());
}

TEST_P(Presets, HaveWeightGradientsPlacedWithinOnePercentOfTheBound) {
  const Cluster cluster = Cluster::load(GetParam().cluster);
  const CostModel cost(cluster);
  const Schedule schedule = make_schedule(Model::load(GetParam().model, cluster.device), cost, {.passes = {"dw"}});
  EXPECT_TRUE(schedule.is_dw_used);
  EXPECT_LE(schedule.dw_gap, 0.01);
  EXPECT_LT(schedule.after.timeline.step_s, schedule.before.timeline.step_s);
}

/// With times measured on a GPU (src/bench/costs) instead of the cluster's figures.
TEST_P(Presets, HideAsMuchOfTheShuffleAsTheDocsSayWithMeasuredTimesToo) {
  const Cluster cluster = Cluster::load(GetParam().cluster);
  const CostTable table =
      CostTable::load(std::string(SHUNT_COSTS_DIR) + "/" + cluster.device + ".json", cluster.device);
  ASSERT_GT(table.size(), 0u);
  UnmeasuredOps unmeasured;
  const CostModel cost(cluster, {.table = &table, .unmeasured = &unmeasured});
  const Schedule schedule = make_schedule(Model::load(GetParam().model, cluster.device), cost, {});
  expect_documented(schedule, GetParam().measured);
  EXPECT_LE(unmeasured.size(), table.size() / 20) << "measure again: docs/schedule.md";
}

TEST_P(Presets, StillHideHalfOfItUnderATightMemoryCap) {
  const Cluster cluster = Cluster::load(GetParam().cluster);
  const CostModel cost(cluster);
  const Model model = Model::load(GetParam().model, cluster.device);
  const Outcome before = evaluate(build_training_step(model, cluster.ranks()), cost);
  const std::int64_t cap = before.memory.peak_bytes * 105 / 100;
  const Schedule schedule = make_schedule(model, cost, {.memory_cap_bytes = cap, .passes = {}, .dw_seconds = 0.1});
  EXPECT_LE(schedule.after.memory.peak_bytes, cap);
  EXPECT_LE(schedule.after.timeline.exposed_all_to_all_s, before.timeline.exposed_all_to_all_s / 2);
}

INSTANTIATE_TEST_SUITE_P(All, Presets,
                         testing::Values(Case{"gpt2-s-moe", "v100x64", {94.4, 91.9, 1.45}, {96.2, 93.5, 1.41}},
                                         Case{"gpt2-s-moe", "a100x64", {99.9, 99.7, 1.15}, {100, 100, 1.11}},
                                         Case{"gpt2-l-moe", "v100x64", {96.5, 93.8, 1.42}, {99.8, 99.4, 1.36}},
                                         Case{"gpt2-l-moe", "a100x64", {99.8, 99.2, 1.13}, {99.3, 96.6, 1.12}}));

TEST(Schedule, CutsEveryMoeLayerOfDeepSeekV3AndBeatsTutel) {
  const CostModel cost(Cluster::load("h100x64"));
  const Schedule schedule = make_schedule(Model::load("deepseek-v3", "h100"), cost, {});
  EXPECT_LT(schedule.after.timeline.step_s, schedule.tutel.timeline.step_s);
  ASSERT_EQ(schedule.layers.size(), 58u) << "one for each layer with experts";
  for (const LayerReport& layer : schedule.layers) EXPECT_THAT(layer.what, testing::HasSubstr("in 2 parts"));
}

TEST(Schedule, RanksWithDifferentSchedulesAreNamed) {
  EXPECT_NO_THROW(check_same_schedule(std::vector<std::uint64_t>{7, 7, 7}));
  try {
    check_same_schedule(std::vector<std::uint64_t>{7, 7, 9});
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 2 has schedule 0000000000000009"));
  }
}

TEST(Schedule, NamesAnUnknownPass) {
  const CostModel cost(Cluster::load("v100x8"));
  EXPECT_THROW(make_schedule(Model::load("tiny", "v100"), cost, {.passes = {"magic"}}), Error);
}

TEST(ModelDescription, IsCheckedKeyByKey) {
  const auto error_of = [](const std::string& text) -> std::string {
    try {
      (void)Model::from_json("m.json", text, "v100");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("{\n}"), testing::HasSubstr("m.json: name: is missing"));
  EXPECT_THAT(error_of("[1]"), testing::HasSubstr("m.json: expected an object"));
  EXPECT_THAT(error_of("{\"name\": \"a b\"}"), testing::HasSubstr("m.json: name: expected letters"));
  EXPECT_THAT(error_of("{\"name\": \"a\", \"layers\": 1.5}"),
              testing::HasSubstr("m.json: layers: expected a whole number"));
  EXPECT_THROW((void)Model::load("no-such-model", "v100"), Error);
  const CostModel cost(Cluster::load("a100x24"));
  EXPECT_THROW(make_schedule(Model::load("olmoe", "a100"), cost, {}), Error) << "64 experts on 24 ranks";
}

}  // namespace
}  // namespace shunt::graph
