#include "graph/cost.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "graph/model.hpp"
#include "graph/text.hpp"
#include "support/require_error.hpp"
#include "support/scratch_folder.hpp"

namespace shunt::graph {
namespace {

TEST(Interpolation, IsLinearBetweenPointsAndBeyondThem) {
  const Curve curve = {{100, 1}, {200, 3}, {400, 4}};
  EXPECT_DOUBLE_EQ(interpolate(curve, 50), 1);
  EXPECT_DOUBLE_EQ(interpolate(curve, 100), 1);
  EXPECT_DOUBLE_EQ(interpolate(curve, 150), 2);
  EXPECT_DOUBLE_EQ(interpolate(curve, 200), 3);
  EXPECT_DOUBLE_EQ(interpolate(curve, 300), 3.5);
  EXPECT_DOUBLE_EQ(interpolate(curve, 800), 6);
}

TEST(Cost, PartsOfAProductTakeLongerThanTheWhole) {
  const Cluster cluster = Cluster::load("v100x8");
  const Work whole{.m = 4096, .n = 1024, .k = 1024, .batch = 1};
  for (const std::int64_t parts : {2, 3, 7, 64}) {
    Work part = whole;
    part.m = whole.m / parts;
    EXPECT_GE(static_cast<double>(parts) * product_seconds(cluster, part, 1e12),
              0.999 * product_seconds(cluster, whole, 1e12) * static_cast<double>(parts * part.m) / 4096);
  }
  Work eighth = whole;
  eighth.m = whole.m / 8;
  EXPECT_GT(8 * product_seconds(cluster, eighth, 12e12), 1.05 * product_seconds(cluster, whole, 12e12));
  Work sliver = whole;
  sliver.m = 1;
  EXPECT_GT(4096 * product_seconds(cluster, sliver, 1e12), 10 * product_seconds(cluster, whole, 1e12));
}

TEST(Cost, UniformVolumeSendsATokenOncePerNode) {
  const ShuffleRows top1 = UniformVolume(Cluster::load("v100x64")).rows({0, 1000, 1, 128});
  EXPECT_NEAR(top1.far, 8 * 1000 * 7.0 / 8, 1e-9);
  const ShuffleRows top8 = UniformVolume(Cluster::load("h100x64")).rows({0, 1000, 8, 256});
  EXPECT_NEAR(top8.far / 8000, 5.3 * 7 / 8, 0.05);  // a token touches 5.3 of 8 nodes
  EXPECT_DOUBLE_EQ(top8.mean, 8000);
  ShufflePart limited{0, 1000, 8, 256, 8, 4};
  EXPECT_NEAR(UniformVolume(Cluster::load("h100x64")).rows(limited).far / 8000, 3.63 * 7 / 8, 0.01)
      << "of the 4 nodes that a token may use";
  limited.kept = 0.5;
  EXPECT_DOUBLE_EQ(UniformVolume(Cluster::load("h100x64")).rows(limited).mean, 4000);
}

TEST(Cost, AnAllToAllTakesAsLongAsTheNodesLinkNeeds) {
  const Cluster cluster = Cluster::load("v100x64");
  const Graph graph = build_training_step(Model::load("gpt2-s-moe", "v100"), 64);
  const CostModel cost(cluster);
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::dispatch) {
      const double bytes = 8 * 16 * 512 * 768 * 4 * 7.0 / 8;
      EXPECT_NEAR(cost.of(graph, op).alone_s(), 40e-6 + bytes / (100e9 / 8 * 0.85), 1e-9);
    }
}

class CostFile : public testing::Test {
 protected:
  CostTable load() { return CostTable::load(path_, "v100"); }
  test::ScratchFolder folder_;
  std::string path_ = folder_.file("costs.json");
};

TEST_F(CostFile, KeepsMeasuredTimes) {
  const Graph graph = build_forward(Model::load("tiny", "v100"), 1);
  CostTable table("v100");
  const Op* product = nullptr;
  for (const Op& op : graph.ops())
    if (op.kind == OpKind::matmul) product = &op;
  table.set(cost_key(graph, *product), 0.25);
  table.save(path_);
  const CostTable again = load();
  const Cluster cluster = Cluster::load("v100x8");
  EXPECT_EQ(CostModel(cluster, {.table = &again}).of(graph, *product).compute_s, 0.25 + cluster.kernel_s);
}

TEST(Cost, CollectsWhatTheTableLacksOnceForEachShape) {
  const Graph graph = build_forward(Model::load("gpt2-s-moe", "v100"), 8);
  const Cluster cluster = Cluster::load("v100x8");
  CostTable table("v100");
  UnmeasuredOps unmeasured;
  const CostModel cost(cluster, {.table = &table, .unmeasured = &unmeasured});
  for (const Op& op : graph.ops()) (void)cost.of(graph, op);
  const auto json = nlohmann::json::parse(unmeasured.json("v100"));
  EXPECT_EQ(json["device"], "v100");
  ASSERT_EQ(json["ops"].size(), unmeasured.size());
  bool has_scores = false;
  for (const auto& op : json["ops"]) {
    table.set(op["key"], 1);
    if (op["op"] != "softmax" || op["attributes"]["over"] != std::vector<std::string>{"Z"}) continue;
    has_scores = true;
    EXPECT_EQ(op["operands"][0]["dims"], (std::vector<std::string>{"B", "S", "Z", "H"}));
    EXPECT_EQ(op["operands"][0]["sizes"], (std::vector<int>{16, 512, 512, 12}));
    EXPECT_EQ(op["bytes"], 2.0 * 16 * 512 * 512 * 12 * 4);
  }
  EXPECT_TRUE(has_scores);
  UnmeasuredOps rest;
  const CostModel measured(cluster, {.table = &table, .unmeasured = &rest});
  for (const Op& op : graph.ops())
    if (lane_of(op) == Lane::compute) {
      EXPECT_EQ(measured.of(graph, op).compute_s, 1 + cluster.kernel_s);
    }
  EXPECT_EQ(rest.size(), 0u);
}

TEST_F(CostFile, NamesFileAndCauseWhereItCantBeUsed) {
  const auto expect_error = [this](const std::string& cause) {
    EXPECT_NO_THROW(test::require_error([this] { (void)load(); }, ErrorCode::invalid_argument, path_ + cause));
  };
  expect_error(": can't be opened: No such file");
  for (const auto& [text, cause] : {
           std::pair("", ":1: no JSON"),
           {"{\"version\": 2,\n\"device\": \"v1", ":2: no JSON"},
           {"[]", ": expected an object"},
           {R"({"name": "tiny", "layers": 2})", ": version: is missing"},
           {R"({"version": 1, "device": "v100", "seconds": {}})", ": version: expected 2"},
           {R"({"version": 2, "device": "a100", "seconds": {}})", ": device: \"a100\", expected v100"},
           {R"({"version": 2, "device": "v100"})", ": seconds: is missing"},
           {R"({"version": 2, "device": "v100", "seconds": {"x": -1}})", ": seconds.x: expected a number from 0"},
           {R"({"version": 2, "device": "v100", "seconds": {"x": 1e308}})", ": seconds.x: expected a number from 0"},
           {R"({"version": 2, "device": "v100", "seconds": {"x": "y"}})", ": seconds.x: expected a number from 0"},
       }) {
    SCOPED_TRACE(text);
    std::ofstream(path_) << text;
    expect_error(cause);
  }
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("/dev/zero", path_);
  expect_error(": no regular file");
}

}  // namespace
}  // namespace shunt::graph
