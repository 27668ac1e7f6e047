// What happens at the edges: signals that find no room, exceptions with tickets in hand, owners that own the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/to_everyone.hpp"
#include "shunt/error.hpp"

namespace shunt::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

using TicketsAtTheEdge = AtPlace;
using TicketsThatWait = AtPlace;
using DeadlinesAt = AtPlace;
using BadInputAt = AtPlace;
INSTANTIATE_TEST_SUITE_P(At, TicketsAtTheEdge, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, TicketsThatWait, ::testing::Values(kHostThreads, kHostIslands, kDeviceIslands),
                         kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, DeadlinesAt, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, BadInputAt, kThreadPlaces, kNameOfPlace);

TEST(Signals, ThatFoundNoRoomAreSentThoughTheirRankIsIdle) {
  constexpr int kOutstanding = 300;
  std::atomic<int> num_finished{0};
  World::spawn(3, [&](World& world) {
    ToEveryone shuffle(world);
    {
      std::vector<Ticket<Rows>> tickets;
      for (int n = 0; n < kOutstanding; ++n) tickets.push_back(shuffle.dispatch(n));
      for (int n = 0; n < kOutstanding; ++n)
        if (const Rows rows = tickets[static_cast<std::size_t>(n)].wait(); !shuffle.is_dispatch(rows.data, n))
          ADD_FAILURE() << "rank " << world.rank().value << ", dispatch " << n;
    }
    ++num_finished;
    // No rank calls shunt again, or leaves, before all have finished.
    for (int i = 0; i < 1000 && num_finished < 3; ++i) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_EQ(num_finished, 3);
  });
}

TEST_P(TicketsThatWait, DroppedByAnExceptionTellTheOtherRanks) {
  SpawnOptions options = place().spawn(place().topology(2));
  options.environment.liveness = milliseconds(200);
  const std::string message = error_of(
      [&] {
        const auto body = [&](World& world) {
          ToEveryone first(world, place());
          ToEveryone second(world, place());
          if (world.rank() == RankId(0)) {
            const auto ticket = first.dispatch(0);
            throw Error(ErrorCode::unsupported, "rank 0 has had enough");
          }
          // Legal, as order between engines is free; but rank 0 will never call it.
          const std::string seen = error_of([&] { (void)second.dispatch(0).wait(); }, ErrorCode::peer_failed);
          EXPECT_THAT(seen, HasSubstr("rank 0"));
        };
        World::spawn(2, body, options);
      },
      ErrorCode::unsupported);
  EXPECT_THAT(message, HasSubstr("had enough"));
}

TEST_P(TicketsAtTheEdge, DroppedByAnExceptionThatIsHandledDoNoHarm) {
  place().run(2, [&](World& world) {
    ToEveryone shuffle(world, place());
    try {
      const auto ticket = shuffle.dispatch(0);
      if (world.rank() == RankId(0)) (void)shuffle.engine().dispatch({}, shuffle.token(1));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
    const Rows rows = shuffle.dispatch(2).wait();
    EXPECT_TRUE(shuffle.is_dispatch(rows.data, 2));
  });
}

TEST_P(TicketsAtTheEdge, CanBeWaitedForOnce) {
  place().run(1, [&](World& world) {
    ToEveryone shuffle(world, place());
    auto ticket = shuffle.dispatch(0);
    (void)ticket.wait();
    EXPECT_THAT(error_of([&] { (void)ticket.wait(); }, ErrorCode::invalid_argument), HasSubstr("waited for before"));
  });
}

TEST(Tickets, MayKeepTheWholeWorldAlive) {
  World::spawn(2, [](World& world) {
    struct Layer {
      World world;
      Engine engine;
      std::vector<float> token = std::vector<float>(4, 1.0f);
    };
    World inner = world.split(0);
    Engine engine(inner, {.hidden = 4, .dtype = f32});
    auto layer = std::make_shared<Layer>(Layer{std::move(inner), std::move(engine)});
    const std::vector<std::int32_t> experts = {0, 1};
    const Plan plan = layer->engine.plan({experts, {}, 2}, ExpertMap::contiguous(2, 2));
    ConstTensor x = borrow(static_cast<const void*>(layer->token.data()), f32, 1, 4);
    x.owner = layer;
    auto ticket = layer->engine.dispatch(plan, x);
    layer.reset();
    x = {};
    EXPECT_EQ(ticket.wait().data.rows, 2);
  });
}

TEST(Mismatch, OfAWorldsCollectivesIsNoticed) {
  World::spawn(2, [](World& world) {
    const std::string message = error_of(
        [&] {
          if (world.rank() == RankId(0))
            world.barrier();
          else
            (void)world.split(0);
        },
        ErrorCode::mismatch);
    EXPECT_THAT(message, ::testing::AllOf(HasSubstr("barrier"), HasSubstr("split")));
  });
}

TEST_P(DeadlinesAt, MayBeAsLongAsCanBeSaid) {
  place().run(2, [&](World& world) {
    Engine engine(world, place().options({.hidden = 4, .dtype = f32, .deadline = milliseconds::max()}));
    if (world.rank() == RankId(0)) std::this_thread::sleep_for(milliseconds(300));
    const std::vector<std::int32_t> experts = {0, 1};
    EXPECT_EQ(engine.plan({experts, {}, 2}, ExpertMap::contiguous(2, 2)).num_rows(), 2);
  });
}

TEST_P(DeadlinesAt, MustBePositive) {
  place().run(1, [&](World& world) {
    error_of([&] { Engine(world, place().options({.hidden = 4, .deadline = milliseconds(0)})); },
             ErrorCode::invalid_argument);
    EXPECT_THAT(error_of([&] { Engine(world, place().options({.hidden = 4, .deadline = milliseconds(-1)})); },
                         ErrorCode::invalid_argument),
                HasSubstr("deadline"));
  });
}

TEST_P(BadInputAt, OutThatOverlapsTheInputIsRefused) {
  place().run(1, [&](World& world) {
    ToEveryone shuffle(world, place());
    Tensor rows = shuffle.answers(0);
    EXPECT_THAT(error_of([&] { (void)shuffle.engine().combine(shuffle.plan(), rows, {.out = rows}); },
                         ErrorCode::invalid_argument),
                HasSubstr("overlaps"));
    EXPECT_THAT(error_of([&] { (void)shuffle.engine().dispatch(shuffle.plan(), rows, {.scales = {}, .out = rows}); },
                         ErrorCode::invalid_argument),
                HasSubstr("overlaps"));
  });
}

TEST(World, RefusesShapesThatCantBe) {
  World::spawn(1, [](World& world) {
    constexpr std::int64_t kHuge = std::int64_t{1} << 40;
    error_of([&] { (void)world.allocate(f32, kHuge, kHuge); }, ErrorCode::invalid_argument);
    EXPECT_THAT(error_of([&] { (void)world.allocate(f32, -1, 1); }, ErrorCode::invalid_argument), HasSubstr("-1"));
  });
}

TEST(Dispatch, IntoForeignMemoryKeepsNoBlock) {
  World::spawn(1, [](World& world) {
    ToEveryone shuffle(world);
    const std::size_t before = world.live_bytes();
    std::vector<float> memory(5);
    const Rows rows =
        shuffle.dispatch(0, {.scales = {}, .out = borrow(static_cast<void*>(memory.data()), f32, 1, 5)}).wait();
    EXPECT_TRUE(shuffle.is_dispatch(rows.data, 0));
    for (int i = 0; i < 1000 && world.live_bytes() != before; ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(world.live_bytes(), before);
  });
}

}  // namespace
}  // namespace shunt::test
