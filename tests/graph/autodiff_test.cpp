#include "graph/autodiff.hpp"

#include <gtest/gtest.h>

#include <tuple>

#include "graph/finite_differences.hpp"
#include "graph/small_models.hpp"
#include "graph/verify.hpp"

namespace shunt::graph {
namespace {

class Gradients : public testing::TestWithParam<test::SmallModel> {};

class GradientsOnRanks : public testing::TestWithParam<std::tuple<test::SmallModel, std::int32_t>> {};

TEST_P(GradientsOnRanks, AgreeWithFiniteDifferencesOfTheGlobalLoss) {
  const auto& [model, ranks] = GetParam();
  const Graph forward = build_forward(test::model_of(model), ranks);
  Graph graph = forward;
  const auto gradients = append_backward(graph, graph.outputs.front());
  verify(graph);
  test::expect_finite_differences(forward, graph, gradients, 7);
}

INSTANTIATE_TEST_SUITE_P(Models, GradientsOnRanks,
                         testing::Combine(testing::ValuesIn(test::small_models()), testing::Values(1, 2)),
                         [](const auto& each) {
                           return std::get<0>(each.param).name + "On" + std::to_string(std::get<1>(each.param));
                         });

TEST_P(Gradients, ReachEveryParameter) {
  Graph graph = build_forward(test::model_of(GetParam()), 1);
  std::size_t params = 0;
  for (const Op& op : graph.ops()) params += op.kind == OpKind::param;
  EXPECT_EQ(append_backward(graph, graph.outputs.front()).size(), params);
}

INSTANTIATE_TEST_SUITE_P(Models, Gradients, testing::ValuesIn(test::small_models()),
                         [](const auto& each) { return each.param.name; });

TEST(WeightGradients, AreTheOpsWhoseUsersAreUpdates) {
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
