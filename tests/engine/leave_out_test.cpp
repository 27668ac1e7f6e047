// Decoding on devices goes on without ranks that are lost.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "engine/small_shuffle.hpp"
#include "engine/steps.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 4;
constexpr RankId kLost(2);
const std::vector<std::int64_t> kTokens = {16, 9, 14, 1};

const StepShape kShape = shape_with_copies_on(kLost);

ShuffleCase step_of(std::uint64_t seed) { return draw_step(seed, kShape, kTokens); }
ShuffleCase rest_of(std::uint64_t seed) { return without_ranks(step_of(seed), {kLost}); }

constexpr std::chrono::seconds kLong(20);
constexpr std::chrono::milliseconds kShort(300);

class LeaveOut : public OnDevice {
 protected:
  static void take_steps(std::chrono::milliseconds deadline, const std::function<void(World&, Engine&)>& then) {
    on_ranks(kRanks, [&](World& world) {
      Engine engine = make_engine(world, kDeviceThreads, kShape, deadline);
      for (std::uint64_t seed = 0; seed < 3; ++seed) take(world, engine, step_of(seed));
      then(world, engine);
    });
  }
};

TEST_F(LeaveOut, ResultsAreThoseOfTheRest) {
  take_steps(kLong, [](World& world, Engine& engine) {
    if (world.rank() == kLost) return;
    engine.leave_out(std::span(&kLost, 1));
    for (std::uint64_t seed = 3; seed < 7; ++seed) take(world, engine, rest_of(seed), {.asks = seed % 2 != 0});
  });
}

TEST_F(LeaveOut, ALostRankIsNamedByAllOthersWhichGoOnWithoutIt) {
  take_steps(kShort, [](World& world, Engine& engine) {
    if (world.rank() == kLost) return;
    EXPECT_EQ(engine.missing(), std::nullopt);
    require_error([&] { take(world, engine, step_of(3)); }, ErrorCode::deadline, "rank 2 did not reach the barrier");
    require_error([&] { take(world, engine, step_of(3)); }, ErrorCode::deadline, "rank 2 did not reach the barrier");
    const std::optional<RankId> missing = engine.missing();
    EXPECT_EQ(missing, kLost);
    engine.leave_out(std::span(&*missing, 1));
    EXPECT_EQ(engine.missing(), std::nullopt);
    for (std::uint64_t seed = 3; seed < 7; ++seed) take(world, engine, rest_of(seed));
  });
}

// A rank that comes late misses all others. It must not go on without them.
TEST_F(LeaveOut, IsRefusedToAMinority) {
  take_steps(kShort, [](World& world, Engine& engine) {
    if (world.rank() != kLost) {
      engine.leave_out(std::span(&kLost, 1));
      for (std::uint64_t seed = 3; seed < 5; ++seed) take(world, engine, rest_of(seed));
      return;
    }
    std::vector<RankId> others;
    for (std::int32_t rank = 0; rank < world.size(); ++rank)
      if (RankId(rank) != kLost) others.emplace_back(rank);
    require_error([&] { engine.leave_out(others); }, ErrorCode::minority, "1 of 4 ranks would go on");
    const std::array half = {RankId(0), RankId(1)};
    require_error([&] { engine.leave_out(half); }, ErrorCode::minority, "2 of 4 ranks would go on");
  });
}

TEST_F(LeaveOut, RanksThatWaitAtDifferentBarriersGoOnTogether) {
  take_steps(kShort, [](World& world, Engine& engine) {
    const ShuffleCase step = step_of(3);
    RankOfCase rank(world, engine, step);
    rank.dispatch()();
    if (world.rank() == kLost) return;
    if (world.rank().value == 0)
      require_error([&] { rank.combine()(); }, ErrorCode::deadline, "did not reach the barrier");
    engine.leave_out(std::span(&kLost, 1));
    for (std::uint64_t seed = 4; seed < 7; ++seed) take(world, engine, rest_of(seed));
  });
}

TEST_F(LeaveOut, AMissingRankIsNamedAndMayComeLater) {
  take_steps(kShort, [](World& world, Engine& engine) {
    const auto leave_out = [&] { engine.leave_out(std::span(&kLost, 1)); };
    if (world.rank() != kLost && world.rank().value != 3) {
      require_error(leave_out, ErrorCode::deadline, "leave_out: rank 3 did not reach the barrier");
      require_error([&] { take(world, engine, rest_of(3)); }, ErrorCode::deadline, "rank 3 did not reach the barrier");
    }
    world.barrier();
    if (world.rank() == kLost) return;
    leave_out();
    for (std::uint64_t seed = 3; seed < 5; ++seed) take(world, engine, rest_of(seed));
  });
}

// Rank 1's record of its first try is still there when rank 0 tries again.
TEST_F(LeaveOut, TheNextTryMayLeaveOutMore) {
  take_steps(kShort, [](World& world, Engine& engine) {
    const RankId also_lost(3);
    const bool stays = world.rank() != kLost && world.rank() != also_lost;
    if (stays)
      require_error([&] { engine.leave_out(std::span(&kLost, 1)); }, ErrorCode::deadline,
                    "leave_out: rank 3 did not reach the barrier");
    world.barrier();
    if (!stays) return;
    if (world.rank().value == 1) std::this_thread::sleep_for(kShort / 2);
    engine.leave_out(std::span(&also_lost, 1));
    for (std::uint64_t seed = 3; seed < 7; ++seed)
      take(world, engine, without_ranks(step_of(seed), {kLost, also_lost}));
    engine.leave_out({});
    take(world, engine, without_ranks(step_of(7), {kLost, also_lost}));
  });
}

// Rank 1's deadline passes before rank 3 comes. Rank 0, which came in between, goes on with rank 3 and rank 1's record.
TEST_F(LeaveOut, ARankThatGaveUpTooEarlyCatchesUp) {
  take_steps(kShort, [](World& world, Engine& engine) {
    const auto leave_out = [&] { engine.leave_out(std::span(&kLost, 1)); };
    std::this_thread::sleep_for(kShort * std::vector{4, 0, 0, 8}[world.rank().index()] / 3);
    if (world.rank().value == 1)
      require_error(leave_out, ErrorCode::deadline, "leave_out: rank 3 did not reach the barrier");
    else if (world.rank() != kLost)
      leave_out();
    bool is_together = false;
    for (int turn = 0; turn < 4 && !is_together; ++turn) {
      world.barrier();
      if (world.rank().value == 1) std::this_thread::sleep_for(kShort / 3);
      std::byte has_left{1};
      try {
        if (world.rank() != kLost) leave_out();
      } catch (const Error&) {
        has_left = std::byte{0};
      }
      is_together = true;
      for (const auto& said : world.all_gather(std::span(&has_left, 1))) is_together &= said.front() == std::byte{1};
    }
    require(is_together, "ranks go on together");
    if (world.rank() != kLost) take(world, engine, rest_of(3));
  });
}

TEST_F(LeaveOut, LeavingOutDifferentRanksIsAnErrorOnAll) {
  take_steps(kShort, [](World& world, Engine& engine) {
    if (world.rank() == kLost) return;
    const RankId other(3);
    const RankId& lost = world.rank().value == 0 ? other : kLost;
    // Rank 0 exchanges nothing with rank 3.
    require_error([&] { engine.leave_out(std::span(&lost, 1)); },
                  world.rank() == other ? ErrorCode::deadline : ErrorCode::mismatch, "leave_out");
  });
}

TEST_F(LeaveOut, ALostRankWritesNoMemoryOfOthersLater) {
  on_ranks(kRanks, [&](World& world) {
    const Engine lender(world, kDeviceThreads.options({.hidden = 1}));
    std::optional<Engine> engine(make_engine(world, kDeviceThreads, kShape, kShort));
    take(world, *engine, step_of(0));
    world.barrier();
    const auto leave_out = [&] {
      engine->leave_out(std::span(&kLost, 1));
      engine.reset();
    };
    come_late(world, lender, world.rank() == kLost, leave_out, [&] {
      require_error([&] { take(world, *engine, step_of(1)); }, ErrorCode::deadline, "did not reach the barrier");
    });
  });
}

// The watchdog looks while the others wait for rank 3, which is late before it leaves.
TEST_F(LeaveOut, WhatALostRankFailsWithIsNoFaultOfTheRest) {
  const auto run = [](World& world) {
    Engine engine = make_engine(world, kDeviceThreads, kShape, kLong);
    take(world, engine, step_of(0));
    if (world.rank() == kLost) throw std::logic_error("no more coffee");
    const auto go_on = [&] {
      require_error([&] { take(world, engine, step_of(1)); }, ErrorCode::peer_failed, "no more coffee");
      engine.leave_out(std::span(&kLost, 1));
      if (world.rank().value == 3) std::this_thread::sleep_for(kShort);
      take(world, engine, rest_of(2));
      if (world.rank().value == 3) return;
      require_error([&] { take(world, engine, rest_of(3)); }, ErrorCode::peer_lost, "rank 3 has left the world");
    };
    EXPECT_NO_THROW(go_on());
  };
  EXPECT_THROW(kDeviceThreads.run(kRanks, run), std::logic_error);
}

TEST_F(LeaveOut, RefusesItselfAndRanksThatDoNotExist) {
  take_steps(kLong, [](World& world, Engine& engine) {
    const RankId self = world.rank(), absent(kRanks);
    require_error([&] { engine.leave_out(std::span(&self, 1)); }, ErrorCode::invalid_argument, "leave_out");
    require_error([&] { engine.leave_out(std::span(&absent, 1)); }, ErrorCode::invalid_argument, "rank 4");
    take(world, engine, step_of(3));
  });
}

TEST_F(LeaveOut, WhatWritesToAllRanksIsRefusedAfterwards) {
  take_steps(kLong, [](World& world, Engine& engine) {
    const ExpertMap map = step_of(3).routing.map;
    const Plan before = engine.plan({}, map, {.layout = Layout::expert_major, .max_rows = 8});
    world.barrier();
    if (world.rank() != kLost) {
      engine.leave_out(std::span(&kLost, 1));
      const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, engine.options().hidden);
      const auto refuses = [](const std::function<void()>& call) {
        require_error(call, ErrorCode::unsupported, "ranks were left out");
      };
      refuses([&] { (void)engine.plan({}, map, {.layout = Layout::expert_major}); });
      refuses([&] { (void)engine.dispatch(before, nothing); });
      refuses([&] { (void)engine.combine(before, engine.expert_out(before)); });
      refuses([&] { (void)engine.plan({}, map, {.layout = Layout::padded, .max_tokens = 3}); });
    }
    world.barrier();
  });
}

TEST_F(LeaveOut, AFaultCanBeClearedWithoutLeavingRanksOut) {
  take_steps(kShort, [](World& world, Engine& engine) {
    if (world.rank() != kLost) require_error([&] { take(world, engine, step_of(3)); }, ErrorCode::deadline, "rank 2");
    world.barrier();
    engine.leave_out({});
    for (std::uint64_t seed = 3; seed < 5; ++seed) take(world, engine, step_of(seed));
  });
}

}  // namespace
}  // namespace shunt::test
