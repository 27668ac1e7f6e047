// Whole steps on real ranks equal the interpreter's, in every order that the passes make.
#include "runtime/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "graph/interpreter.hpp"
#include "graph/model.hpp"
#include "graph/passes/lancet.hpp"
#include "graph/passes/pass.hpp"
#include "graph/passes/tutel.hpp"
#include "graph/small_models.hpp"
#include "graph/text.hpp"
#include "support/require_error.hpp"

namespace shunt::runtime::test {
namespace {

using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::ValueId;
namespace interpreter = graph::test;

using Bits = std::map<std::string, std::vector<float>>;  // by name: values after a step

bool is_declaration(const Op& op) {
  return op.kind == OpKind::input || op.kind == OpKind::param || op.kind == OpKind::state;
}

void fill(Store& store, const Graph& graph, const interpreter::Values& values) {
  for (const Op& op : graph.ops()) {
    if (!is_declaration(op)) continue;
    const ValueId id = op.results[0];
    const std::vector<double>& data = values.at(graph.value(id).name).data;
    std::byte* const memory = store.memory(graph.value(id).name, data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (graph.type(id).element == graph::Element::i32)
        reinterpret_cast<std::int32_t*>(memory)[i] = static_cast<std::int32_t>(data[i]);
      else
        reinterpret_cast<float*>(memory)[i] = static_cast<float>(data[i]);
    }
  }
}

std::vector<float> elements(const View& view) {
  std::vector<float> all;
  const auto walk = [&](const auto& self, std::size_t axis, std::int64_t offset) -> void {
    if (axis == view.axes.size()) return all.push_back(view.f32()[offset]);
    for (std::int64_t i = 0; i < view.axes[axis].size; ++i) self(self, axis + 1, offset + i * view.axes[axis].stride);
  };
  walk(walk, 0, 0);
  return all;
}

struct Run {
  std::int32_t steps = 1;
  SpawnOptions spawn = {};
  ExecutorOptions options = {};
};

/// By rank: outputs, parameters and states after the steps.
std::vector<Bits> execute(const Graph& graph, const interpreter::RankValues& given, const Run& run = {}) {
  std::vector<Bits> results(given.size());
  World::spawn(
      graph.ranks,
      [&](World& world) {
        const std::size_t rank = world.rank().index();
        Store store;
        fill(store, graph, given[rank]);
        Executor executor(world, graph, store, run.options);
        for (std::int32_t step = 0; step < run.steps; ++step) executor.step();
        for (const Op& op : graph.ops())
          if (op.kind == OpKind::param || op.kind == OpKind::state)
            results[rank][graph.value(op.results[0]).name] = elements(executor.view(op.results[0]));
        for (const ValueId output : graph.outputs)
          results[rank]["return " + graph.value(output).name] = elements(executor.view(output));
      },
      run.spawn);
  return results;
}

/// What the interpreter gives for the values of execute() after one step.
std::map<std::string, std::vector<double>> expected_of(const Graph& graph, const interpreter::Values& values) {
  std::map<std::string, std::vector<double>> expected;
  for (const Op& op : graph.ops()) {
    if (op.kind == OpKind::param || op.kind == OpKind::state)
      expected[graph.value(op.results[0]).name] = values.at(graph.value(op.results[0]).name).data;
    if (graph::info(op.kind).writes == 0 || op.kind == OpKind::all_reduce) continue;
    std::size_t result = 0;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (graph::info(op.kind).overwrites(i))
        expected[graph.value(op.operands[i]).name] = values.at(graph.value(op.results[result++]).name).data;
  }
  for (const ValueId output : graph.outputs)
    expected["return " + graph.value(output).name] = values.at(graph.value(output).name).data;
  return expected;
}

void expect_near(const std::map<std::string, std::vector<double>>& expected, const Bits& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, values] : expected) {
    const std::vector<float>& found = actual.at(name);
    ASSERT_EQ(found.size(), values.size()) << name;
    double norm = 0, distance = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      norm += values[i] * values[i];
      distance += (values[i] - found[i]) * (values[i] - found[i]);
    }
    EXPECT_LE(std::sqrt(distance), 1e-5 * std::max(std::sqrt(norm), 1e-2)) << name;
  }
}

/// Nothing is read that the step has not written, and memory that values share is never in use twice.
Run careful() {
  Run run;
  run.options.memory.poisons = true;
  return run;
}

void expect_as_interpreted(const Graph& graph, std::uint64_t seed, const Run& run = careful()) {
  const interpreter::RankValues given = interpreter::random_declarations(graph, seed);
  const interpreter::RankValues values = interpreter::interpret(graph, given);
  const std::vector<Bits> actual = execute(graph, given, run);
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    expect_near(expected_of(graph, values[rank]), actual[rank]);
  }
}

Cluster cluster_of(std::int32_t ranks) {
  Cluster cluster = Cluster::load("v100x8");
  cluster.nodes = 1;
  cluster.ranks_per_node = ranks;
  cluster.f32_flops = cluster.memory_bytes_per_s = cluster.near_bytes_per_s = 1e9;
  cluster.tile = 2;
  return cluster;
}

/// The step in the orders of each pass alone, of the baselines, and of all passes together.
std::map<std::string, Graph> schedules_of(const Graph& step) {
  const graph::CostModel cost(cluster_of(step.ranks));
  std::map<std::string, Graph> schedules = {
      {"plain", step}, {"tutel", tutel(step, cost).graph}, {"lancet", lancet(step, cost)}};
  graph::PassContext context{.cost = cost, .interleaves_micro_batches = true, .notes = {}};
  Graph all = step;
  for (const graph::Pass& pass : graph::all_passes()) {
    schedules.emplace(pass.name, pass.apply(step, context));
    all = pass.apply(all, context);
  }
  schedules.emplace("all", all);
  return schedules;
}

class ExecutorOfModel : public ::testing::TestWithParam<interpreter::SmallModel> {};

TEST_P(ExecutorOfModel, ComputesWhatTheInterpreterDoesInEveryOrder) {
  for (const std::int32_t ranks : {1, 2, 4})
    for (const auto& [name, graph] :
         schedules_of(graph::build_training_step(interpreter::model_of(GetParam()), ranks))) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + name);
      expect_as_interpreted(graph, 3);
    }
}

INSTANTIATE_TEST_SUITE_P(Small, ExecutorOfModel, ::testing::ValuesIn(interpreter::small_models()),
                         [](const auto& model) { return model.param.name; });

TEST(Executor, ComputesRandomModelsAsTheInterpreterDoes) {
  for (std::uint64_t seed = 0; seed < 40 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    constexpr std::int32_t kRanks[] = {1, 2, 3, 7};
    const Graph step = graph::build_training_step(interpreter::model_of(interpreter::random_model(seed)),
                                                  kRanks[seed % std::size(kRanks)]);
    auto schedules = schedules_of(step);
    expect_as_interpreted(seed % 2 == 0 ? schedules.at("all") : schedules.at("partition"), seed);
  }
}

Graph tiny_step(std::int32_t ranks) {
  return graph::build_training_step(interpreter::model_of(interpreter::small_models()[0]), ranks);
}

// Orders of independent ops change no bit.
TEST(Executor, GivesTheSameBitsWhereOnlyTheOrderDiffers) {
  const Graph step = tiny_step(4);
  const interpreter::RankValues given = interpreter::random_declarations(step, 5);
  const std::vector<Bits> plain = execute(step, given);
  const auto schedules = schedules_of(step);
  for (const char* name : {"dw", "all_reduce"}) {
    EXPECT_NE(schedules.at(name).hash(), step.hash()) << name;
    EXPECT_EQ(execute(schedules.at(name), given, careful()), plain) << name;
  }
  const Topology two_nodes = Topology::virtual_nodes(4, 2);
  EXPECT_EQ(execute(step, given, {.spawn = {.kind = WorldKind::islands, .topology = two_nodes}}),
            execute(step, given, {.spawn = {.topology = two_nodes}}));
  EXPECT_EQ(execute(step, given, {.options = {.transfers_in_flight = 1}}), plain);
}

TEST(Executor, KeepsReplicatedParametersEqualOnAllRanks) {
  const Graph step = tiny_step(4);
  const std::vector<Bits> after = execute(step, interpreter::random_declarations(step, 6), {.steps = 5});
  std::size_t compared = 0;
  for (const Op& op : step.ops()) {
    if (op.kind != OpKind::param || !interpreter::is_replicated(step, op)) continue;
    const std::string& name = step.value(op.results[0]).name;
    for (const Bits& of_rank : after) EXPECT_EQ(of_rank.at(name), after[0].at(name)) << name;
    ++compared;
  }
  EXPECT_GT(compared, 5u);
}

// Every token goes to the first rank's experts: more rows than the block has room for.
TEST(Executor, GrowsOnceOnAllRanksWhenRowsNeedMoreThanTheBlockHas) {
  const Graph step = tiny_step(4);
  interpreter::RankValues given = interpreter::random_declarations(step, 7);
  std::vector<std::int64_t> growths(4);
  std::mutex mutex;
  for (auto& values : given) std::ranges::fill(values.at("l1.w.gate").data, 0);  // the first of equal scores win
  World::spawn(4, [&](World& world) {
    Store store;
    fill(store, step, given[world.rank().index()]);
    Executor executor(world, step, store, {.memory = {.headroom = 1.01, .poisons = true}});
    const std::size_t before = executor.memory().bytes();
    for (int i = 0; i < 4; ++i) executor.step();
    const std::lock_guard lock(mutex);
    growths[world.rank().index()] = executor.memory().num_growths();
    EXPECT_GT(executor.memory().bytes(), before);
  });
  EXPECT_EQ(growths, (std::vector<std::int64_t>{1, 1, 1, 1}));
}

TEST(Executor, RefusesRanksWithDifferentGraphsByName) {
  const Graph step = tiny_step(3), other = schedules_of(step).at("dw");
  World::spawn(3, [&](World& world) {
    Store store;
    shunt::test::require_error([&] { Executor(world, world.rank().value == 2 ? other : step, store); },
                               ErrorCode::mismatch, "rank 2");
  });
}

TEST(Executor, EndsTheStepOfAllRanksWhenOneFailsOrLeaves) {
  const Graph step = tiny_step(3);
  const interpreter::RankValues given = interpreter::random_declarations(step, 8);
  for (const bool throws : {true, false}) {
    const auto body = [&](World& world) {
      Store store;
      fill(store, step, given[world.rank().index()]);
      Executor executor(world, step, store);
      executor.step();
      if (world.rank().value == 1) {
        if (throws) throw std::runtime_error("on purpose");
        return;
      }
      for (int again = 0; again < 2; ++again)
        shunt::test::require_error([&] { executor.step(); }, throws ? ErrorCode::peer_failed : ErrorCode::peer_lost,
                                   "rank 1");
    };
    if (throws)
      EXPECT_THROW(World::spawn(3, body), std::runtime_error);
    else
      EXPECT_NO_THROW(World::spawn(3, body));
  }
}

/// What rank 1 of three brings, such that a lane of it fails within the step.
enum class Fault : std::uint8_t { token_beyond_the_vocabulary, gate_that_is_not_a_number };

class ExecutorFault : public ::testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(Of, ExecutorFault,
                         ::testing::Values(Fault::token_beyond_the_vocabulary, Fault::gate_that_is_not_a_number),
                         [](const auto& fault) {
                           return fault.param == Fault::token_beyond_the_vocabulary ? "ComputeLane" : "CommLane";
                         });

// The failed rank keeps its world, so the others learn it from the executor alone.
TEST_P(ExecutorFault, WithinAStepIsNamedOnAllRanksWithItsCause) {
  const Graph step = tiny_step(3);
  interpreter::RankValues given = interpreter::random_declarations(step, 8);
  const bool is_token = GetParam() == Fault::token_beyond_the_vocabulary;
  if (is_token)
    given[1].at("tokens").data[3] = 999;
  else
    given[1].at("l1.w.gate").data.assign(given[1].at("l1.w.gate").data.size(), NAN);
  EXPECT_NO_THROW(World::spawn(3, [&](World& world) {
    const bool is_culprit = world.rank().value == 1;
    Store store;
    fill(store, step, given[world.rank().index()]);
    std::optional<Executor> executor;
    const auto run = [&] {
      if (!executor) executor.emplace(world, step, store);  // a rank may learn it here already
      executor->step();
    };
    for (int again = 0; again < 2; ++again)
      shunt::test::require_error(run, is_culprit ? ErrorCode::invalid_argument : ErrorCode::peer_failed,
                                 is_token     ? "no token 999"
                                 : is_culprit ? "weight"
                                              : "rank 1 failed in a step");
    std::this_thread::sleep_for(std::chrono::milliseconds(is_culprit ? 200 : 0));
  }));
}

}  // namespace
}  // namespace shunt::runtime::test
