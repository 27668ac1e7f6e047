#include "shunt/trace_recorder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "shunt/engine.hpp"
#include "shunt/error.hpp"
#include "support/file_size_limit.hpp"
#include "support/require_error.hpp"
#include "support/round_trip.hpp"
#include "support/scratch_folder.hpp"
#include "support/trace_tokens.hpp"

namespace shunt::test {
namespace {

using ::testing::ElementsAre;

constexpr std::int32_t kExperts = 6;
constexpr std::int32_t kTopK = 2;
constexpr TraceRecorderOptions kTwoLayers = {.layers = 2, .experts = kExperts, .topk = kTopK};

class TraceRecorders : public testing::Test {
 protected:
  static EngineOptions options(std::shared_ptr<TraceRecorder> recorder, std::int32_t layer) {
    return {.hidden = 4, .dtype = f32, .trace = {std::move(recorder), layer}};
  }

  [[nodiscard]] TraceTokens read(std::int32_t layer) const {
    const RoutingTrace trace = RoutingTrace::open(path_);
    return TraceTokens::of_layer(trace.layer(layer), trace.shape(), 3);
  }

  /// The tokens of a rank in one step, with values that f16 holds.
  static TraceTokens step(std::int32_t rank, std::int32_t number, std::int32_t tokens) {
    std::mt19937_64 generator(static_cast<std::uint64_t>(rank * 100 + number));
    Dice dice(generator);
    const TraceShape shape = {.experts = kExperts, .topk = kTopK, .weights = true, .sources = true};
    return TraceTokens::random(dice, shape, tokens, 0, rank, true);
  }

  ScratchFolder folder_;
  std::string path_ = folder_.file("a.trace");
  ExpertMap map_ = ExpertMap::contiguous(kExperts, 1);
};

TEST_F(TraceRecorders, HoldWhatEachRankAndLayerPlanned) {
  const auto path_of = [&](RankId rank) { return folder_.file(std::to_string(rank.value)); };
  World::spawn(3, [&](World& world) {
    const auto recorder = std::make_shared<TraceRecorder>(path_of(world.rank()), kTwoLayers);
    Engine first(world, options(recorder, 0));
    Engine second(world, options(recorder, 1));
    const ExpertMap map = ExpertMap::contiguous(kExperts, 3);
    for (std::int32_t number = 0; number < 4; ++number)
      for (Engine* engine : {&first, &second})
        (void)engine->plan(step(world.rank().value, number, world.rank().value * 3).routing(kTopK), map);
    recorder->finish();
  });
  for (const std::int32_t rank : {0, 1, 2}) {
    TraceTokens expected;
    for (std::int32_t number = 0; number < 4; ++number) expected.append(step(rank, number, rank * 3));
    path_ = path_of(RankId(rank));
    for (const std::int32_t layer : {0, 1}) EXPECT_EQ(read(layer), expected);
  }
}

TEST_F(TraceRecorders, AreSharedByRanksThatAreThreads) {
  const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
  World::spawn(4, [&](World& world) {
    Engine engine(world, options(recorder, 1));
    for (std::int32_t number = 0; number < 20; ++number)
      (void)engine.plan(step(world.rank().value, number, 5).routing(kTopK), ExpertMap::contiguous(kExperts, 4));
  });
  recorder->finish();
  EXPECT_EQ(recorder->num_recorded(), 400);
  const TraceTokens all = read(1);
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    std::vector<std::int32_t> experts;
    for (std::size_t token = 0; token < all.sources.size(); ++token)
      if (all.sources[token] == rank) {
        const auto begin = all.experts.begin() + static_cast<std::ptrdiff_t>(token * kTopK);
        experts.insert(experts.end(), begin, begin + kTopK);
      }
    TraceTokens expected;
    for (std::int32_t number = 0; number < 20; ++number) expected.append(step(rank, number, 5));
    EXPECT_EQ(experts, expected.experts) << "rank " << rank;
  }
}

TEST_F(TraceRecorders, KeepTheRoutersChoicesThatACapacityDrops) {
  const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
  const std::vector<std::int32_t> experts = {0, 1, 0, 1, 0, 1};
  World::spawn(1, [&](World& world) {
    const Plan plan = Engine(world, options(recorder, 0)).plan({experts, {}, kTopK}, map_, {.capacity = 1});
    EXPECT_EQ(plan.num_rows(), 2);
  });
  recorder->finish();
  EXPECT_EQ(read(0).experts, experts);
}

TEST_F(TraceRecorders, StopAtALayersLimitAndCountTheRest) {
  TraceRecorderOptions limited = kTwoLayers;
  limited.max_tokens_per_layer = 7;
  TraceRecorder recorder(path_, limited);
  const TraceTokens tokens = step(0, 0, 5);
  for (int i = 0; i < 3; ++i) recorder.record(0, tokens.routing(kTopK), RankId(0));
  recorder.record(1, tokens.routing(kTopK), RankId(0));
  EXPECT_EQ(recorder.num_recorded(), 7 + 5);
  EXPECT_EQ(recorder.num_skipped(), 8);
  recorder.finish();
  EXPECT_EQ(read(0).sources.size(), 7u);
  EXPECT_EQ(read(1), tokens);
  recorder.record(1, tokens.routing(kTopK), RankId(0));
  EXPECT_EQ(recorder.num_skipped(), 13);
  recorder.finish();
}

TEST_F(TraceRecorders, LeaveNothingOfAPlanThatFailed) {
  const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
  World::spawn(1, [&](World& world) {
    Engine engine(world, options(recorder, 0));
    const std::vector<std::int32_t> twice = {1, 1};
    const std::vector<float> infinite = {1, std::numeric_limits<float>::infinity()};
    const std::vector<std::int32_t> good = {1, 2};
    require_error([&] { (void)engine.plan({twice, {}, kTopK}, map_); }, ErrorCode::invalid_argument, "");
    require_error([&] { (void)engine.plan({good, infinite, kTopK}, map_); }, ErrorCode::invalid_argument, "");
    EXPECT_EQ(recorder->num_recorded(), 0);
    (void)engine.plan({good, {}, kTopK}, map_);
    EXPECT_EQ(recorder->num_recorded(), 1);
  });
}

TEST_F(TraceRecorders, ForOtherRoutingsAreRefusedBeforeAnythingIsSent) {
  const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
  World::spawn(2, [&](World& world) {
    require_error([&] { Engine(world, options(recorder, 2)); }, ErrorCode::invalid_argument,
                  "engine: trace.layer is 2, expected 0 to 1");
    Engine engine(world, options(recorder, 0));
    const std::vector<std::int32_t> experts = {1, 2, 3};
    const ExpertMap map = ExpertMap::contiguous(kExperts, 2);
    require_error(
        [&] {
          (void)engine.plan({experts, {}, 3}, map);
        },
        ErrorCode::invalid_argument, "the trace is of top-2 of 6 experts, the routing top-3, the map of 6 experts");
    const ExpertMap large = ExpertMap::contiguous(kExperts + 1, 2);
    require_error(
        [&] {
          (void)engine.plan({std::span(experts).first(2), {}, 2}, large);
        },
        ErrorCode::invalid_argument, "the map of 7 experts");
    (void)engine.plan({std::span(experts).first(2), {}, 2}, map);
  });
}

TEST_F(TraceRecorders, ChangeNoResult) {
  const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
  World::spawn(kExperts / 2, [&](World& world) {
    Engine engine(world, options(recorder, 0));
    round_trip(engine, world, 9, 1);
  });
  EXPECT_EQ(recorder->num_recorded(), 9 * kExperts / 2);
}

TEST_F(TraceRecorders, GiveUpOnAFullDiskWithoutStoppingTheirEngine) {
  {
    const auto recorder = std::make_shared<TraceRecorder>(path_, kTwoLayers);
    const FileSizeLimit full_disk(100'000);
    World::spawn(1, [&](World& world) {
      Engine engine(world, options(recorder, 0));
      const TraceTokens tokens = step(0, 0, 30'000);
      for (int i = 0; i < 5; ++i) EXPECT_EQ(engine.plan(tokens.routing(kTopK), map_).num_tokens(), 30'000);
    });
    EXPECT_EQ(recorder->num_recorded() + recorder->num_skipped(), 150'000);
    EXPECT_GE(recorder->num_skipped(), 30'000);
    require_error([&] { recorder->check(); }, ErrorCode::system, "can't write " + path_);
    require_error([&] { recorder->finish(); }, ErrorCode::system, "can't write " + path_);
    EXPECT_THAT(folder_.names(), ElementsAre());
  }
  EXPECT_THAT(folder_.names(), ElementsAre());
}

TEST_F(TraceRecorders, LeaveNoFileUnlessFinished) {
  { TraceRecorder(path_, kTwoLayers).record(0, step(0, 0, 5).routing(kTopK), RankId(0)); }
  EXPECT_THAT(folder_.names(), ElementsAre());
}

}  // namespace
}  // namespace shunt::test
