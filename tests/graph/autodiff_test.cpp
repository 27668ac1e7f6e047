#include "graph/autodiff.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpreter.hpp"
#include "graph/small_models.hpp"
#include "graph/verify.hpp"

namespace shunt::graph {
namespace {

class Gradients : public testing::TestWithParam<test::SmallModel> {};

/// Central differences of the loss along single entries of every parameter.
TEST_P(Gradients, AgreeWithFiniteDifferences) {
  Graph graph = build_forward(test::model_of(GetParam()), 1);
  const ValueId loss = graph.outputs.front();
  const auto gradients = append_backward(graph, loss);
  verify(graph);
  const Graph forward = build_forward(test::model_of(GetParam()), 1);
  test::Values given = test::random_declarations(graph, 7);
  const test::Values values = test::interpret(graph, given);
  const auto loss_at = [&] {
    return test::interpret(forward, given).at(forward.value(forward.outputs[0]).name).data[0];
  };
  std::mt19937_64 random(3);
  for (const auto& [param, gradient] : gradients) {
    const std::string name = graph.value(param).name;
    const std::vector<double>& computed = values.at(graph.value(gradient).name).data;
    for (int sample = 0; sample < 3; ++sample) {
      const std::size_t i = random() % computed.size();
      constexpr double kStep = 1e-5;
      double& entry = given[name].data[i];
      const double kept = entry;
      entry = kept + kStep;
      const double above = loss_at();
      entry = kept - kStep;
      const double below = loss_at();
      entry = kept;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(computed[i], expected, 1e-8 + 1e-5 * std::abs(expected)) << name << " entry " << i;
    }
  }
}

TEST_P(Gradients, ReachEveryParameter) {
  Graph graph = build_forward(test::model_of(GetParam()), 1);
  std::size_t params = 0;
  for (const Op& op : graph.ops()) params += op.kind == OpKind::param;
  EXPECT_EQ(append_backward(graph, graph.outputs.front()).size(), params);
}

INSTANTIATE_TEST_SUITE_P(Models, Gradients, testing::ValuesIn(test::small_models()),
                         [](const auto& each) { return each.param.name; });

TEST(WeightGradients, AreTheOpsThatOnlyUpdatesWaitFor) {
  const Graph graph = build_training_step(Model::load("tiny", "none"), 4);
  const std::vector<bool> is_late = weight_gradients(graph);
  for (std::size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = graph.op(OpId(i));
    const bool has_role = op.kind == OpKind::embedding_dw || op.kind == OpKind::norm_dw ||
                          (op.origin.phase == Phase::backward && op.kind == OpKind::reduce);
    if (has_role) {
      EXPECT_TRUE(is_late[i]) << graph.value(op.results[0]).name;
    }
    if (op.kind == OpKind::norm_dx || op.origin.phase == Phase::forward || is_all_to_all(op)) {
      EXPECT_FALSE(is_late[i]) << graph.value(op.results[0]).name;
    }
  }
}

}  // namespace
}  // namespace shunt::graph
