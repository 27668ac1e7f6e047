// What ranks do wrong is an Error on all others in every place; devices stay usable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <latch>
#include <optional>
#include <thread>

#include "engine/small_shuffle.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/spawn_recorder.hpp"

namespace shunt::test {
namespace {

using Body = std::function<void(World&, SmallShuffle&)>;

constexpr std::chrono::milliseconds kSoon(300);

class FaultAt : public AtPlace {
 protected:
  /// Each rank's body returns or throws; its rank stays until all have.
  void on_ranks(std::int32_t num_ranks, std::chrono::milliseconds deadline, const Body& body) const {
    std::latch through(num_ranks);
    const auto run = [&](World& world) {
      std::optional<SmallShuffle> shuffle(std::in_place, world, place(), deadline, "layer 4");
      {
        const std::shared_ptr<void> at_end(nullptr, [&](void*) { through.count_down(); });
        body(world, *shuffle);
      }
      through.wait();
      if (kind(num_ranks) != EngineKind::node) return;  // elsewhere a fault is one of the world
      world.barrier();
      shuffle.reset();
      SmallShuffle(world, place()).round_trip();  // whatever happened, another engine works
      world.barrier();
    };
    ASSERT_NO_THROW(place().run(num_ranks, run));
  }
};
INSTANTIATE_TEST_SUITE_P(At, FaultAt, kThreadPlaces, kNameOfPlace);

// Between nodes the rank is alone on its node, where no other waits for it in the others' stead.
TEST_P(FaultAt, ARankThatNeverComesIsNamedByAllOthers) {
  on_ranks(3, kSoon, [&](World& world, SmallShuffle& shuffle) {
    shuffle.plan();
    EXPECT_NO_THROW(shuffle.engine().check());
    EXPECT_EQ(shuffle.engine().missing(), std::nullopt);
    if (world.rank().value == 2) return;
    const auto begin = std::chrono::steady_clock::now();
    require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::deadline, "rank 2");
    require(std::chrono::steady_clock::now() - begin < 30 * kSoon, "the deadline is not another one");
    for (const std::string text : {"rank 2", "of 'layer 4'"}) {
      require_error([&] { (void)shuffle.dispatch(); }, ErrorCode::deadline, text);
      require_error([&] { shuffle.engine().check(); }, ErrorCode::deadline, text);
    }
    if (kind(3) == EngineKind::node) {
      EXPECT_EQ(shuffle.engine().missing(), RankId(2));
      require(*shuffle.engine().fault_word() != 0, "kernels see the fault");
    } else {
      EXPECT_EQ(shuffle.engine().fault_word(), nullptr);
    }
  });
}

// The ranks of the other node wait for rank 2, which waits for rank 3; their deadlines begin first.
TEST_P(FaultAt, ARankThatNeverComesIsNamedByFarRanksThatWaitLonger) {
  if (place().topology(4).num_nodes() == 1) GTEST_SKIP() << "one node";
  on_ranks(4, std::chrono::seconds(4), [&](World& world, SmallShuffle& shuffle) {
    shuffle.plan();
    if (world.rank().value == 3) return;
    if (world.rank().value == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::deadline, "waits for rank 3 to call it");
  });
}

// An engine that did not ask the world would wait until the test times out.
TEST_P(FaultAt, ARankThatFailsOrLeavesIsNotWaitedForUntilTheLongestDeadlineWhichIsNoShortOne) {
  for (const bool throws : {true, false}) {
    std::latch planned(3);
    const auto run = [&](World& world) {
      SmallShuffle shuffle(world, place(), std::chrono::milliseconds::max(), "layer 4");
      if (world.rank().value == 1) std::this_thread::sleep_for(kSoon);
      shuffle.plan();
      planned.arrive_and_wait();
      if (world.rank().value == 1 && throws) throw std::logic_error("no more coffee");
      if (world.rank().value == 1) return;
      for (int turn = 0; turn < 2; ++turn)
        EXPECT_NO_THROW(require_error([&] { (void)shuffle.dispatch().wait(); },
                                      throws ? ErrorCode::peer_failed : ErrorCode::peer_lost,
                                      throws ? "rank 1 failed: no more coffee" : "rank 1 has left"));
    };
    if (throws)
      EXPECT_THROW(place().run(3, run), std::logic_error);
    else
      EXPECT_NO_THROW(place().run(3, run));
  }
}

class FaultOfProcesses : public AtPlace {};
INSTANTIATE_TEST_SUITE_P(At, FaultOfProcesses, ::testing::Values(kHostProcesses, kDeviceProcesses), kNameOfPlace);

// Others may still write into its memory.
TEST_P(FaultOfProcesses, OneThatDiesOrStopsIsNamedAndLeavesMemoryUsable) {
  constexpr RankId kCulprit(1);
  for (const auto& [signal, words] : {std::pair(SIGKILL, "ended"), std::pair(SIGSTOP, "has not answered")}) {
    const auto body = [&, signal = signal](World& world) {
      SmallShuffle shuffle(world, place(), std::chrono::hours(1));
      shuffle.plan();
      if (world.rank() == kCulprit) raise(signal);
      try {
        for (;;) (void)shuffle.dispatch().wait();
      } catch (const Error&) {
        const Tensor tensor = shuffle.engine().allocate(f32, 1, 1);
        fill(shuffle.engine(), tensor, 5.0f);
        EXPECT_EQ(floats_of(shuffle.engine(), tensor), std::vector{5.0f});
        throw;
      }
    };
    SpawnRecorder survivors;
    EXPECT_TRUE(survivors.spawn(3, body, hasty()).threw);
    survivors.expect_all_received(kCulprit, ErrorCode::peer_lost, {words});
  }
}

/// On devices of one node what fails is one engine.
using DeviceFault = OnDevice;

/// What kernels of experts read.
std::vector<std::int32_t> counts_on_device(SmallShuffle& shuffle) {
  return values_of(shuffle.engine(), shuffle.current_plan().device().expert_counts);
}

TEST_F(DeviceFault, AFailedPlanHasNoRowsOnTheDevice) {
  on_ranks(2, kSoon, [](World& world, SmallShuffle& shuffle) {
    for (int i = 0; i < 2; ++i) shuffle.plan({.max_rows = 100});
    EXPECT_THAT(counts_on_device(shuffle), ::testing::Each(4));
    if (world.rank().value == 1) return;
    shuffle.plan({.max_rows = 100});  // in the memory of the first
    EXPECT_THAT(counts_on_device(shuffle), ::testing::Each(0));
    require_error([&] { (void)shuffle.dispatch(); }, ErrorCode::deadline, "rank 1 did not reach the barrier");
  });
}

TEST_F(DeviceFault, WhatFollowsAFailedPlanReadsNothingOfIt) {
  // Recycled memory may hold anything: ranks that don't exist, beyond and before those that do.
  for (const std::byte pattern : {std::byte{0x3f}, std::byte{0xa5}})
    on_ranks(2, kSoon, [&](World& world, SmallShuffle& shuffle) {
      poison(shuffle.engine(), shuffle.engine().allocate(f32, 1, std::int64_t{2} << 20), pattern);
      if (world.rank().value == 1) return;
      shuffle.plan({.max_rows = 100});
      (void)shuffle.dispatch();
      require_error([&] { (void)shuffle.combine().wait(); }, ErrorCode::deadline, "rank 1 did not reach the barrier");
    });
}

TEST_F(DeviceFault, OutputsOfWhatFailsAreNan) {
  // What else fails comes after the first, which has to find the fault by itself.
  for (const bool is_backward : {false, true})
    on_ranks(2, kSoon, [&](World& world, SmallShuffle& shuffle) {
      shuffle.plan({.max_rows = 16});
      const Plan& plan = shuffle.current_plan();
      Engine& engine = shuffle.engine();
      const Tensor& rows = shuffle.rows();
      const Tensor sums = engine.allocate(f32, 8, SmallShuffle::kHidden);
      fill(engine, rows, 1.0f);
      fill(engine, sums, 1.0f);
      if (world.rank().value == 1) return;
      std::vector<Tensor> outputs{sums};
      if (is_backward) {
        const Gradients gradients = engine.combine_backward(plan, shuffle.x(), rows).wait_on(engine.stream());
        outputs.insert(outputs.end(), {gradients.rows, gradients.weights});
      } else {
        outputs.push_back(shuffle.dispatch().wait_on(engine.stream()).data);
      }
      auto last = is_backward ? engine.dispatch_backward(plan, rows, {.out = sums}) : shuffle.combine({.out = sums});
      require_error([&] { (void)last.wait(); }, ErrorCode::deadline, "rank 1 did not reach the barrier");
      for (const Tensor& output : outputs)
        require(all_are(bytes_of(engine, output), std::byte{0xff}), "outputs are poisoned");
    });
}

TEST_F(DeviceFault, PaddedRowsOfWhatFailsAreNanAndTheirCountsZero) {
  on_ranks(2, kSoon, [](World& world, SmallShuffle& shuffle) {
    for (const bool is_packed : {false, true}) {
      shuffle.plan({.layout = Layout::padded, .max_tokens = 8, .packed = is_packed});
      (void)shuffle.engine().dispatch(shuffle.current_plan(), shuffle.x()).wait();
      (void)shuffle.combine().wait();
    }
    Engine& engine = shuffle.engine();
    if (world.rank().value == 1) return;
    const Rows rows = engine.dispatch(shuffle.current_plan(), shuffle.x()).wait_on(engine.stream());
    require(all_are(bytes_of(engine, rows.data), std::byte{0xff}), "rows are poisoned");
    EXPECT_THAT(values_of(engine, rows.source_counts), ::testing::Each(0));
    require_error([&] { engine.check(); }, ErrorCode::deadline, "rank 1 did not reach the barrier");
  });
}

TEST_F(DeviceFault, ARankThatComesLateWritesNoMemoryOfOthers) {
  on_ranks(2, [](World& world) {
    SmallShuffle lender(world, kDeviceThreads);
    std::optional<SmallShuffle> shuffle(std::in_place, world, kDeviceThreads, kSoon);
    shuffle->plan();
    world.barrier();
    const auto dispatch_without = [&](const char* other) {
      require_error([&] { (void)shuffle->dispatch().wait(); }, ErrorCode::deadline, other);
    };
    const auto give_up = [&] {
      dispatch_without("rank 1 did not reach the barrier");
      shuffle.reset();
    };
    come_late(world, lender.engine(), world.rank().value == 1, give_up,
              [&] { dispatch_without("rank 0 did not reach the barrier"); });
  });
}

TEST_F(DeviceFault, RowsThatOnlySomeRanksGiveToTheirPlanAreNamed) {
  on_ranks(2, [](World& world, SmallShuffle& shuffle) {
    const Tensor rows = shuffle.engine().allocate(f32, 16, SmallShuffle::kHidden);
    const bool is_first = world.rank().value == 0;
    shuffle.plan({.max_rows = 16, .rows = is_first ? rows : Tensor()});
    require_error([&] { (void)shuffle.current_plan().read(); }, ErrorCode::mismatch,
                  is_first ? "rank 0 called plan, rank 1 plan with another map or other options"
                           : "rank 1 called plan, rank 0 plan with another map or other options");
  });
}

TEST_F(DeviceFault, ABadEntryIsNamedByAllRanks) {
  // Twice an expert with several copies, twice one with a single copy, one that does not exist, one that 32 bits can't
  // hold, whose lower half is an expert.
  using Experts = std::vector<std::int64_t>;
  for (const auto& [bad, named] :
       {std::pair(Experts{0, 2, 0}, "token 1: expert 0"), std::pair(Experts{1, 3, 3}, "token 1: expert 3"),
        std::pair(Experts{1, 4, 0}, "token 1: expert 4"), std::pair(Experts{1, (1ll << 32) + 2, 0}, "token 1: expert")})
    for (const bool has_copies : {true, false})
      on_ranks(2, [&, &bad = bad, named = std::string(named)](World& world) {
        Engine engine(world, kDeviceThreads.options({.hidden = 8, .dtype = f32}));
        const ExpertMap map =
            has_copies ? ExpertMap::from_placement(4, {{0, 1, 2}, {0, 1, 3}}) : ExpertMap::contiguous(4, 2);
        Experts experts = {0, 1, 2, 3, 1, 0};
        if (world.rank().value == 1) std::ranges::copy(bad, experts.begin() + 3);
        require_error([&] { (void)engine.plan({.experts = experts, .topk = 3}, map); },
                      world.rank().value == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed,
                      world.rank().value == 1 ? named : "rank 1 failed: " + named);
      });
}

}  // namespace
}  // namespace shunt::test
