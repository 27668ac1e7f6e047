// Operations proceed by themselves, in any number, and tickets may be treated in any way.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>

#include "engine/rank_of_case.hpp"
#include "engine/to_everyone.hpp"
#include "support/child_process.hpp"
#include "support/dice.hpp"
#include "support/random_case.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

using std::chrono::milliseconds;

/// Ranks, threads or processes, that have come to a place, which their world does not know.
class Passed {
 public:
  void count() { ++*count_; }
  void wait_for(int ranks) const {
    while (*count_ < ranks) std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  SharedAcrossForks<std::atomic<int>> count_;
};

using Issue = Check (RankOfCase::*)();

struct Step {
  std::size_t micro_batch;
  Issue issue;
};

// The same on every rank.
std::vector<Step> random_schedule(Dice& dice, std::size_t num_micro_batches) {
  std::vector<Step> steps;
  for (int i = 0; i < 24; ++i)
    steps.push_back({static_cast<std::size_t>(dice.between(0, static_cast<std::int32_t>(num_micro_batches) - 1)),
                     dice.pick<Issue>({&RankOfCase::dispatch, &RankOfCase::combine, &RankOfCase::dispatch_backward,
                                       &RankOfCase::combine_backward})});
  return steps;
}

// Each rank in its own way: after each issue some tickets that are outstanding are waited for, or dropped.
void follow(const std::vector<Step>& steps, std::vector<RankOfCase>& micro_batches, Dice& dice) {
  std::vector<Check> outstanding;
  const auto settle_one = [&] {
    const auto i = dice.between(0, static_cast<std::int32_t>(outstanding.size()) - 1);
    if (!dice.one_in(5)) outstanding[static_cast<std::size_t>(i)]();
    outstanding.erase(outstanding.begin() + i);
  };
  for (const Step& step : steps) {
    outstanding.push_back((micro_batches[step.micro_batch].*step.issue)());
    while (!outstanding.empty() && dice.one_in(3)) settle_one();
  }
  while (!outstanding.empty()) settle_one();
}

using TicketsAt = AtPlace;
using OperationsAt = AtPlace;
using BuffersAt = AtPlace;
using FailingTicketsAt = AtPlace;
INSTANTIATE_TEST_SUITE_P(At, TicketsAt, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, OperationsAt, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, BuffersAt, kThreadPlaces, kNameOfPlace);
INSTANTIATE_TEST_SUITE_P(At, FailingTicketsAt,
                         ::testing::Values(kHostThreads, kHostIslands, kDeviceIslands, kDeviceNccl), kNameOfPlace);

/// Two or more ranks; the last one issues its operation, by `issue`, when all others have.
template <class Issue>
auto issue_last(const World& world, Passed& others, const Issue& issue) {
  const bool is_last = world.rank().value == world.size() - 1;
  if (is_last) others.wait_for(world.size() - 1);
  auto ticket = issue();
  if (!is_last) others.count();
  return ticket;
}

TEST_P(TicketsAt, OfSeveralPlansMayBeOutstandingAndWaitedForInAnyOrder) {
  for (std::uint64_t seed = 0; seed < (place().is_device ? 10 : 30); ++seed) {
    const Topology topology = topology_of(seed * 16);
    const EngineOptions options = place().options(random_engine_options(seed));
    const bool has_padded = place().kind(topology) == EngineKind::host;  // elsewhere they take turns
    std::vector<ShuffleCase> cases;
    for (std::uint64_t i = 0; cases.size() < 3; ++i)
      if (ShuffleCase drawn = random_shuffle_case(30 * seed + i, topology, options);
          has_padded || drawn.routing.options.layout != Layout::padded) {
        drawn.paths.is_packed = false;
        cases.push_back(std::move(drawn));
      }
    std::mt19937_64 generator(seed);
    Dice common_dice(generator);
    const auto steps = random_schedule(common_dice, cases.size());

    const auto body = [&](World& world) {
      std::mt19937_64 own_generator(seed * 100 + world.rank().index());
      Dice dice(own_generator);
      Engine engine(world, options);
      std::vector<RankOfCase> micro_batches;
      for (const ShuffleCase& each : cases) micro_batches.emplace_back(world, engine, each);
      follow(steps, micro_batches, dice);
      world.barrier();
    };
    ASSERT_NO_THROW(World::spawn(topology.num_ranks(), body, place().spawn(topology))) << "seed " << seed;
  }
}

// Records that find no room are sent later, also while their rank is idle.
TEST(Tickets, MayOutnumberTheRecordsOfAMailbox) {
  constexpr int kOutstanding = 300;
  for (const WorldKind kind : {WorldKind::inproc, WorldKind::shm}) {
    Passed issued, finished;
    const auto run = [&](World& world) {
      ToEveryone shuffle(world);
      const auto issue_all = [&] {
        std::vector<Ticket<Rows>> tickets;
        for (int n = 0; n < kOutstanding; ++n) tickets.push_back(shuffle.dispatch(n));
        return tickets;
      };
      {
        auto tickets = issue_last(world, issued, issue_all);
        for (int n = kOutstanding - 1; n >= 0; --n)
          require(shuffle.is_dispatch(tickets[static_cast<std::size_t>(n)].wait().data, n),
                  "a ticket has its own rows");
      }
      // No rank calls shunt again, or leaves, before all have finished.
      finished.count();
      finished.wait_for(3);
    };
    EXPECT_NO_THROW(World::spawn(3, run, {.kind = kind}));
  }
}

// Complete or not, so that whether a call is refused does not depend on time.
TEST(Tickets, AreRefusedBeyondTheLimitThoughTheirOperationsAreComplete) {
  World::spawn(2, [&](World& world) {
    ToEveryone shuffle(world), other(world);
    std::deque<Ticket<Rows>> tickets;
    for (int n = 0; n < kMostTickets; ++n) tickets.push_back(shuffle.dispatch(n));
    while (!tickets.back().done()) std::this_thread::yield();
    EXPECT_THROW((void)shuffle.dispatch(kMostTickets), Error);
    EXPECT_THROW((void)other.dispatch(0), Error) << "all engines together";
    Engine planning(world, {.hidden = 8, .dtype = f32});
    const ExpertMap map = ExpertMap::contiguous(4, 2);
    const std::vector<std::int32_t> experts = {0, 3};
    const auto start_plan = [&] { return planning.start_plan({.experts = experts, .topk = 1}, map); };
    if (world.rank().value == 0) {
      EXPECT_THROW((void)start_plan(), Error) << "which takes no place in the order";
    }
    world.barrier();  // takes no ticket
    for (int n = 0; n < kMostTickets; ++n) {
      EXPECT_TRUE(shuffle.is_dispatch(tickets.front().wait().data, n));
      tickets.pop_front();
      if (n == 0) tickets.push_back(shuffle.dispatch(kMostTickets));
    }
    EXPECT_TRUE(shuffle.is_dispatch(tickets.front().wait().data, kMostTickets));
    EXPECT_EQ(start_plan().wait().num_local_experts(), 2);
  });
}

TEST_P(TicketsAt, WaitWhenAssignedOrDropped) {
  Passed first, second;
  place().run(2, [&](World& world) {
    ToEveryone shuffle(world, place());
    const Tensor rows = shuffle.rows(), later_rows = shuffle.rows();
    {
      auto ticket = issue_last(world, first, [&] { return shuffle.dispatch(1, {.out = rows}); });
      ticket = issue_last(world, second, [&] { return shuffle.dispatch(2, {.out = later_rows}); });
      EXPECT_TRUE(shuffle.is_dispatch(rows, 1));
    }
    EXPECT_TRUE(shuffle.is_dispatch(later_rows, 2));
  });
}

TEST_P(TicketsAt, AreDoneOnceWaitReturnedAndNotBeforeAllRanksHaveIssued) {
  Passed has_asked;
  place().run(2, [&](World& world) {
    ToEveryone shuffle(world, place());
    const Stream stream = shuffle.engine().stream();
    auto ticket = issue_last(world, has_asked, [&] {
      auto issued = shuffle.dispatch(1);
      EXPECT_TRUE(world.rank().value == 1 || !issued.done());
      return issued;
    });
    EXPECT_EQ(ticket.num_runs(), 1);
    for (const std::int32_t no_run : {-1, 1})
      require_error([&] { (void)ticket.wait_on(stream, no_run); }, ErrorCode::invalid_argument, "no such run");
    (void)ticket.wait_on(stream, 0);
    (void)ticket.wait();
    EXPECT_TRUE(ticket.done());
    require_error([&] { (void)ticket.wait(); }, ErrorCode::invalid_argument, "waited for before");
    require_error([&] { (void)ticket.wait_on(stream); }, ErrorCode::invalid_argument, "waited for before");
  });
}

TEST_P(TicketsAt, KeepTheInputsAlive) {
  Passed issued;
  const bool copies_wait = kind(3) == EngineKind::node;  // for the operation
  place().run(3, [&](World& world) {
    ToEveryone shuffle(world, place());
    // The answers are dropped. Were their memory free, these would get it and overwrite it.
    std::vector<Tensor> others;
    const auto overwrite = [&] {
      for (int n = 0; n < 8; ++n) others.push_back(shuffle.answers(99));
    };
    auto ticket = issue_last(world, issued, [&] {
      auto combined = shuffle.engine().combine(shuffle.plan(), shuffle.answers(1));
      if (!copies_wait) overwrite();
      return combined;
    });
    if (copies_wait) overwrite();
    EXPECT_TRUE(shuffle.is_sum_of_answers(ticket.wait(), 1));
  });
}

TEST_P(TicketsAt, KeepThePlanAlive) {
  Passed has_dropped;
  place().run(2, [&](World& world) {
    auto shuffle = std::make_optional<ToEveryone>(world, place());
    const ToEveryone other(world, place());
    auto ticket = issue_last(world, has_dropped, [&] {
      auto issued = shuffle->dispatch(4);
      shuffle.reset();
      return issued;
    });
    EXPECT_TRUE(other.is_dispatch(ticket.wait().data, 4));
  });
}

TEST_P(TicketsAt, DroppedByAnExceptionThatIsHandledDoNoHarm) {
  place().run(2, [&](World& world) {
    ToEveryone shuffle(world, place());
    const auto fail = [&] {
      const auto ticket = shuffle.dispatch(0);
      (void)shuffle.engine().dispatch({}, shuffle.token(1));
    };
    if (world.rank() == RankId(0))
      require_error(fail, ErrorCode::invalid_argument, "");
    else
      (void)shuffle.dispatch(0);
    EXPECT_TRUE(shuffle.is_dispatch(shuffle.dispatch(2).wait().data, 2));
  });
}

TEST_P(FailingTicketsAt, DroppedByAnExceptionEndTheOtherRanksOperations) {
  SpawnOptions options = place().spawn(place().topology(2));
  options.environment.liveness = milliseconds(200);
  const auto body = [&](World& world) {
    ToEveryone first(world, place()), second(world, place());
    if (world.rank() == RankId(0)) {
      const auto ticket = first.dispatch(0);
      throw Error(ErrorCode::unsupported, "rank 0 has had enough");
    }
    // Legal, as order between engines is free; but rank 0 will never call it.
    EXPECT_NO_THROW(require_error([&] { (void)second.dispatch(0).wait(); }, ErrorCode::peer_failed, "rank 0"));
  };
  EXPECT_NO_THROW(
      require_error([&] { World::spawn(2, body, options); }, ErrorCode::unsupported, "rank 0 has had enough"));
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

TEST_P(OperationsAt, ProceedWithoutTheirCaller) {
  place().run(3, [&](World& world) {
    ToEveryone shuffle(world, place());
    const auto dispatch = shuffle.dispatch(1);
    const auto combine = shuffle.engine().combine(shuffle.plan(), shuffle.answers(2));
    while (!dispatch.done() || !combine.done()) std::this_thread::sleep_for(milliseconds(1));  // or the test times out
  });
}

TEST(Operations, OfTwoEnginesOfAWorldOrItsPartNeedNoCommonOrder) {
  const auto odd_ranks_the_other_way_round = [](World& world) {
    World half = world.split(world.rank().value / 2);
    ToEveryone a(world), of_whole(world), of_half(half);
    const bool is_even = world.rank().value % 2 == 0;
    for (ToEveryone* b : {&of_whole, &of_half})
      for (int n = 0; n < 20; ++n) {
        auto first = is_even ? a.dispatch(n) : b->dispatch(-n);
        auto second = is_even ? b->dispatch(-n) : a.dispatch(n);
        const Rows of_first = first.wait();
        const Rows of_second = second.wait();
        require(a.is_dispatch((is_even ? of_first : of_second).data, n), "the first engine has its own rows");
        require(b->is_dispatch((is_even ? of_second : of_first).data, -n), "the second engine has its own rows");
      }
  };
  for (const WorldKind kind : {WorldKind::inproc, WorldKind::shm})
    EXPECT_NO_THROW(World::spawn(4, odd_ranks_the_other_way_round, {.kind = kind}));
}

TEST_P(OperationsAt, OfPlansMadeWhileOthersAreOutstandingMatch) {
  Passed issued;
  place().run(3, [&](World& world) {
    ToEveryone shuffle(world, place());
    auto early = issue_last(world, issued, [&] { return shuffle.dispatch(1); });
    ToEveryone later(world, place());  // plans, which all ranks take part in
    auto late = later.dispatch(2);
    EXPECT_TRUE(later.is_dispatch(late.wait().data, 2));
    EXPECT_TRUE(shuffle.is_dispatch(early.wait().data, 1));
  });
}

// Each rank waits for plans in an order of its own, with other operations of the engine between.
TEST_P(OperationsAt, StartedPlansAreThoseThatARankWaitsFor) {
  for (std::uint64_t seed = 0; seed < (place().is_device ? 4 : 20); ++seed) {
    const Topology topology = topology_of(seed * 16);
    const EngineOptions options = place().options({.hidden = 16, .dtype = f32});
    const bool has_padded = place().kind(topology) == EngineKind::host;
    std::mt19937_64 generator(seed);
    std::vector<RandomCase> cases;
    while (cases.size() < 4)
      if (RandomCase drawn = random_case(generator, topology); has_padded || drawn.options.layout != Layout::padded)
        cases.push_back(std::move(drawn));
    const auto body = [&](World& world) {
      const RankId rank = world.rank();
      Engine engine(world, options), blocking(world, options);
      std::vector<Ticket<Plan>> tickets;
      for (const RandomCase& each : cases) {
        ExpertMap map = each.map;  // need not outlive the call
        tickets.push_back(engine.start_plan(each.routing(rank), map, each.options));
      }
      std::vector<std::size_t> order(cases.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), std::mt19937_64(seed * 100 + rank.index()));
      std::vector<Plan> plans(cases.size());
      for (const std::size_t i : order) plans[i] = tickets[i].wait();
      for (std::size_t i = 0; i < cases.size(); ++i) {
        const RandomCase& each = cases[i];
        const PlanContents expected = blocking.plan(each.routing(rank), each.map, each.options).read();
        const PlanContents found = plans[i].read();
        require(found.num_rows == expected.num_rows && found.expert_offsets == expected.expert_offsets &&
                    found.unique_of_expert_row == expected.unique_of_expert_row &&
                    found.unique_weights == expected.unique_weights,
                "the plan is the same");
        const Tensor x = engine.allocate(f32, plans[i].num_tokens(), 16);
        (void)engine.dispatch(plans[i], x).wait();
      }
      world.barrier();  // a device is freed when no rank uses it
    };
    ASSERT_NO_THROW(World::spawn(topology.num_ranks(), body, place().spawn(topology))) << "seed " << seed;
  }
}

TEST(Operations, AStartedPlanProceedsWithoutItsCallerAndKeepsItsPlaceInTheOrder) {
  Passed finished;
  const ExpertMap map = ExpertMap::contiguous(6, 3);
  const std::vector<std::int32_t> experts = {0, 3, 5};
  World::spawn(3,
               [&](World& world) {
                 Engine engine(world, {.hidden = 8, .dtype = f32});
                 const Plan early = engine.plan({.experts = experts, .topk = 1}, map);
                 const Tensor x = engine.allocate(f32, 3, 8);
                 auto plan = engine.start_plan({.experts = experts, .topk = 1}, map, {.capacity = 2});
                 auto rows = engine.dispatch(early, x);  // issued while the plan has exchanges before it
                 if (world.rank().value == 0) {
                   finished.wait_for(2);  // by the server thread alone
                   require(plan.done() && rows.done(), "both are complete");
                 }
                 require(plan.wait().num_local_experts() == 2, "it is a plan");
                 (void)rows.wait();
                 finished.count();
               },
               {.kind = WorldKind::islands, .topology = Topology::from_nodes({NodeId(0), NodeId(0), NodeId(1)})});
}

TEST(Operations, AStartedPlanNamesTheRankThatCallsAnotherAndTheCallersOwnMistake) {
  const ExpertMap map = ExpertMap::contiguous(4, 2);
  const std::vector<std::int32_t> experts = {0, 3}, wrong = {0, 4};
  const auto body = [&](World& world) {
    Engine engine(world, {.hidden = 8, .dtype = f32, .name = "layer 7"});
    require_error([&] { (void)engine.start_plan({.experts = wrong, .topk = 1}, map); }, ErrorCode::invalid_argument,
                  "expert 4");
    (void)engine.start_plan({.experts = experts, .topk = 1}, map).wait();  // nothing was sent or counted
    auto plan = engine.start_plan({.experts = experts, .topk = 1}, map, {.alignment = 1 + world.rank().value});
    require_error([&] { (void)plan.wait(); }, ErrorCode::mismatch, "'layer 7'");
  };
  EXPECT_NO_THROW(World::spawn(2, body));
}

TEST(Operations, APlanThatFailsKeepsNothingOfItsWorldAndItsTicketStaysDone) {
  const ExpertMap map = ExpertMap::contiguous(4, 2);
  const std::vector<std::int32_t> experts = {0, 3};
  std::vector<std::weak_ptr<World::Impl>> worlds(4);
  for (const bool is_started : {false, true}) {
    const auto body = [&](World& world) {
      worlds[(is_started ? 2 : 0) + world.rank().index()] = world.impl();
      Engine engine(world, {.hidden = 8, .dtype = f32});
      const Routing routing{.experts = experts, .topk = 1};
      const PlanOptions options{.alignment = 1 + world.rank().value};
      if (!is_started) {
        require_error([&] { (void)engine.plan(routing, map, options); }, ErrorCode::mismatch, "rank");
        return;
      }
      auto plan = engine.start_plan(routing, map, options);
      for (int again = 0; again < 2; ++again)  // and its end, which waits too
        require_error([&] { (void)plan.wait_on(nullptr); }, ErrorCode::mismatch, "rank");
      require(plan.done(), "it is done");
    };
    EXPECT_NO_THROW(World::spawn(2, body));
  }
  for (const auto& world : worlds) EXPECT_TRUE(world.expired());
}

TEST_P(BuffersAt, StayAsTheyAreUntilReleased) {
  place().run(3, [&](World& world) {
    ToEveryone shuffle(world, place());
    std::vector<Rows> activations;
    for (int n = 0; n < 20; ++n) {
      activations.push_back(shuffle.dispatch(n).wait());
      EXPECT_TRUE(shuffle.is_sum_of_answers(shuffle.engine().combine(shuffle.plan(), shuffle.answers(n)).wait(), n));
    }
    for (int n = 0; n < 20; ++n) EXPECT_TRUE(shuffle.is_dispatch(activations[static_cast<std::size_t>(n)].data, n));
  });
}

TEST(Buffers, OutliveTheirEngineAndWorld) {
  std::vector<Rows> kept(2);
  World::spawn(2, [&](World& world) { kept[world.rank().index()] = ToEveryone(world).dispatch(3).wait(); });
  for (const Rows& rows : kept) {
    EXPECT_EQ(rows.data.as<float>().front(), ToEveryone::value(3, 0));
    EXPECT_EQ(rows.data.as<float>().back(), ToEveryone::value(3, 1));
  }
}

}  // namespace
}  // namespace shunt::test
