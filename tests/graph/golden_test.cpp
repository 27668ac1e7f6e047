// The result of each pass for a small step, as text. SHUNT_UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "graph/passes/pass.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/small_models.hpp"
#include "graph/text.hpp"

namespace shunt::graph {
namespace {

/// Round figures, so that rounding decides no order.
Cluster golden_cluster() {
  Cluster cluster = Cluster::load("v100x16");
  cluster.f32_flops = cluster.memory_bytes_per_s = 1e9;
  cluster.near_bytes_per_s = 1e9;
  cluster.far_bytes_per_s = 1 << 22;
  cluster.tile = 2;
  return cluster;
}

Graph small_step() { return build_training_step(test::model_of(test::small_models()[1]), 2); }

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(SHUNT_GOLDEN_DIR) + "/" + name + ".txt";
  if (std::getenv("SHUNT_UPDATE_GOLDEN")) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << path;
}

TEST(Golden, TrainingStep) { expect_golden("step", print(small_step())); }

TEST(Golden, Tutel) { expect_golden("tutel", print(tutel(small_step(), CostModel(golden_cluster())).graph)); }

TEST(Golden, EachPass) {
  for (const Pass& pass : all_passes()) {
    const CostModel cost(golden_cluster());
    PassContext context{.cost = cost, .interleaves_micro_batches = true, .notes = {}};
    expect_golden(std::string(pass.name), print(pass.apply(small_step(), context)));
  }
}

}  // namespace
}  // namespace shunt::graph
