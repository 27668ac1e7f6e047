// Planning, dispatch and combine in CUDA graphs that are replayed with other routings.
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/stream.hpp"
#include "engine/elements.hpp"
#include "engine/rank_of_case.hpp"
#include "engine/small_shuffle.hpp"
#include "engine/steps.hpp"
#include "support/cuda/launches.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

constexpr std::int32_t kRanks = 4;
constexpr std::int64_t kTokens = 300;
constexpr std::int64_t kMaxRows = 1400;

using Graph = device::CapturedGraph;

/// With copies of some experts in `token_unique`, and a capacity that drops rows.
StepShape shape_of(Layout layout, bool has_rows_with_plan = false) {
  StepShape shape{.map = ExpertMap::contiguous(12, kRanks),
                  .max_tokens = kTokens,
                  .layout = layout,
                  .alignment = 4,
                  .max_rows = kMaxRows,
                  .has_rows_with_plan = has_rows_with_plan};
  if (layout == Layout::expert_major) return shape;
  shape.map = ExpertMap::from_placement(12, {{0, 1, 2, 9}, {3, 4, 5, 0}, {6, 7, 8, 0, 3}, {9, 10, 11, 3, 4}},
                                        {{3, 1, 1, 2}, {1, 1, 1, 5}, {1, 1, 1, 2, 2}, {1, 1, 1, 1, 4}});
  shape.alignment = 1;
  shape.capacity = 200;
  return shape;
}

using DeviceGraph = OnDevice;

/// A graph of one rank's plan, dispatch and combine.
class StepGraph {
 public:
  /// Collective.
  StepGraph(World& world, Engine engine, const StepShape& shape, const std::vector<std::int64_t>& num_tokens)
      : world_(world),
        engine_(std::move(engine)),
        shape_(shape),
        num_tokens_(num_tokens[rank()]),
        experts_(engine_.allocate(f32, num_tokens_, shape.topk)),
        weights_(engine_.allocate(f32, num_tokens_, shape.topk)),
        x_(engine_.allocate(shape.dtype, num_tokens_, shape.hidden)),
        result_(engine_.allocate(shape.dtype, num_tokens_, shape.hidden)) {
    if (shape.max_rows > 0) {
      rows_.data = engine_.allocate(shape.dtype, shape.max_rows, shape.hidden);
      expert_out_ = engine_.allocate(shape.dtype, shape.max_rows, shape.hidden);
    }
    take(world, engine_, draw_step(0, shape, num_tokens));
    world.barrier();  // load() overwrites expert_out, which peers may still read for their last combine
    graph_.emplace(engine_.stream(), [this] { put_on_stream(); });
  }

  /// While no rank replays, as compare().
  void load(const ShuffleCase& step) {
    write(engine_, step.routing.ranks[rank()].experts, experts_);
    write(engine_, step.routing.ranks[rank()].weights, weights_);
    engine_.copy(step.x[rank()].tensor(), x_);
    const HostRows given = rows_of(step).second;
    engine_.copy(given.tensor(), first_rows(expert_out_, given.rows()));
    for (const Tensor& output : {rows_.data, result_}) poison(engine_, output);
  }
  void replay() const { graph_->replay(); }
  void compare(const ShuffleCase& step) {
    const ReferenceRows expected = rows_of(step).first;
    require(values_of(engine_, rows_.source_counts) == expected.source_counts, "counts are those of the reference");
    require(shape_.max_rows == 0 || plan_.read().num_rows == expected.rows.rows(), "as many rows come");
    require_same(rows_.data, expected.rows, expected.defined);
    require_same(result_, step.expected.combine[rank()]);
  }
  void load_and_replay(const ShuffleCase& step, int times = 1) {
    load(step);
    world_.barrier();
    while (times-- > 0) replay();
    compare(step);
    world_.barrier();
  }
  [[nodiscard]] Engine& engine() { return engine_; }

 private:
  [[nodiscard]] std::size_t rank() const { return world_.rank().index(); }

  void put_on_stream() {
    const auto count = static_cast<std::size_t>(num_tokens_ * shape_.topk);
    const std::span experts(reinterpret_cast<const std::int32_t*>(experts_.data), count);
    const std::span weights(reinterpret_cast<const float*>(weights_.data), count);
    PlanOptions options = shape_.plan();
    options.max_rows = shape_.max_rows;
    if (shape_.has_rows_with_plan) options.rows = rows_.data;
    plan_ = engine_.plan({experts, weights, shape_.topk, engine_.memory()}, shape_.map, options);
    if (shape_.max_rows == 0) expert_out_ = engine_.expert_out(plan_);
    const Tensor out = shape_.has_rows_with_plan ? Tensor() : rows_.data;
    rows_ = engine_.dispatch(plan_, x_, {.out = out}).wait_on(engine_.stream());
    (void)engine_.combine(plan_, expert_out_, {.out = result_});
  }

  /// What dispatch delivers, and what the experts make of it.
  [[nodiscard]] std::pair<ReferenceRows, HostRows> rows_of(const ShuffleCase& step) const {
    std::pair rows(step.expected.dispatch[rank()], step.expert_out[rank()]);
    if (shape_.is_packed)
      pack(rows.first, rows.second, static_cast<std::size_t>(shape_.max_tokens * shape_.map.num_ranks()));
    return rows;
  }
  void require_same(const Tensor& actual, const HostRows& expected, const std::vector<bool>& compared = {}) {
    HostRows read(expected.dtype(), expected.rows(), expected.cols());
    engine_.copy(first_rows(actual, expected.rows()), read.tensor());
    const std::string text = difference(read.tensor(), expected, compared);
    require(text.empty(), text);
  }

  World& world_;
  Engine engine_;
  StepShape shape_;
  std::int64_t num_tokens_;
  Tensor experts_, weights_, x_, result_;
  Tensor expert_out_{};
  Plan plan_{};
  Rows rows_{};
  std::optional<Graph> graph_{};
};

TEST_F(DeviceGraph, IsReplayedWithOtherRoutings) {
  std::vector<std::pair<StepShape, std::vector<std::int64_t>>> all;
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    for (const bool has_rows_with_plan : {false, true})
      all.emplace_back(shape_of(layout, has_rows_with_plan), std::vector<std::int64_t>(kRanks, kTokens));
  for (const bool is_packed : {false, true})
    all.emplace_back(StepShape{.map = map_with_replicas(), .max_tokens = 40, .is_packed = is_packed},
                     std::vector<std::int64_t>{40, 17, 0, 33});
  for (const auto& [shape, num_tokens] : all) {
    std::vector<ShuffleCase> steps;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) steps.push_back(draw_step(seed, shape, num_tokens));
    on_ranks(kRanks, [&, &shape = shape, &num_tokens = num_tokens](World& world) {
      StepGraph graph(world, make_engine(world, kDeviceThreads, shape), shape, num_tokens);
      for (const ShuffleCase& step : steps) graph.load_and_replay(step, shape.layout == Layout::padded ? 3 : 1);
    });
  }
}

TEST_F(DeviceGraph, OfPlansWithRowsEqualsTheReferenceBitForBit) {
  const auto replay = [](const Engine& engine, const std::function<void()>& work) {
    const Graph graph(engine.stream(), work);
    graph.replay();
    device::check(cudaStreamSynchronize(engine.stream()), "replay");
  };
  for (const auto& [topology, seeds] : choose_seeds(8000, 240)) {
    std::vector<ShuffleCase> cases;
    for (const std::uint64_t seed : seeds) {
      ShuffleCase& drawn = cases.emplace_back(random_shuffle_case(seed, topology));
      drawn.paths.spare_rows = 3;
      drawn.paths.has_rows_with_plan = true;
      drawn.paths.routing = Way::Spot::allocated;
      drawn.paths.x = {};
    }
    const auto run = [&](World& world) {
      for (const ShuffleCase& each : cases) run_case(world, kDeviceThreads, each, {.caller = {.replay = replay}});
      world.barrier();
    };
    ASSERT_NO_THROW(World::spawn(topology.num_ranks(), run, kDeviceThreads.spawn(topology)));
  }
}

// Only in one graph: elsewhere anything may run between them.
TEST_F(DeviceGraph, ADispatchNextToThePlanThatHasItsRowsHasOneBarrierLess) {
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    on_ranks(1, [&](World& world) {
      SmallShuffle shuffle(world, kDeviceThreads);
      const PlanOptions bounded{.layout = layout, .max_rows = 16};
      PlanOptions with_rows = bounded;
      with_rows.rows = shuffle.engine().allocate(f32, 16, SmallShuffle::kHidden);
      shuffle.plan(bounded);
      const auto kernels = [&](const std::function<void()>& work) {
        return std::ssize(blocks_of_kernels(shuffle.engine().stream(), work));
      };
      const auto plan = kernels([&] { shuffle.plan(bounded); });
      const auto dispatch = kernels([&] { (void)shuffle.dispatch(); });
      const auto combine = kernels([&] { (void)shuffle.combine(); });
      const auto dispatch_behind = [&](const PlanOptions& options) {
        shuffle.plan(options);
        (void)shuffle.dispatch();
      };
      EXPECT_EQ(kernels([&] { dispatch_behind(bounded); }), plan + dispatch);
      EXPECT_EQ(kernels([&] { dispatch_behind(with_rows); }), plan + dispatch - 1);
      EXPECT_EQ(kernels([&] { dispatch_behind(with_rows), (void)shuffle.dispatch(); }), plan + 2 * dispatch - 1);
      EXPECT_EQ(kernels([&] { shuffle.plan(with_rows); }), plan);
      EXPECT_EQ(kernels([&] { (void)shuffle.dispatch(); }), dispatch);
      const auto plan_combine_dispatch = [&] {
        shuffle.plan(with_rows);
        (void)shuffle.combine();
        (void)shuffle.dispatch();
      };
      EXPECT_EQ(kernels(plan_combine_dispatch), plan + combine + dispatch);
    });
}

TEST_F(DeviceGraph, TwoOfOneEngineMayTakeTurns) {
  const std::vector<std::int64_t> num_tokens(kRanks, kTokens);
  const std::array shapes{shape_of(Layout::expert_major), shape_of(Layout::token_unique)};
  const std::array steps{draw_step(11, shapes[0], num_tokens), draw_step(12, shapes[1], num_tokens)};
  on_ranks(kRanks, [&](World& world) {
    const Engine engine = make_engine(world, kDeviceThreads, shapes[0]);
    std::deque<StepGraph> graphs;
    for (const StepShape& shape : shapes) graphs.emplace_back(world, engine, shape, num_tokens);
    for (const std::size_t i : {0, 1}) graphs[i].load(steps[i]);
    world.barrier();
    for (const std::size_t turn : {0, 1, 0, 0, 1, 1, 0}) graphs[turn].replay();
    for (const std::size_t i : {0, 1}) graphs[i].compare(steps[i]);
  });
}

TEST_F(DeviceGraph, DropsTheRowsBeyondTheBound) {
  on_ranks(2, [](World& world) {
    SmallShuffle shuffle(world, kDeviceThreads);
    shuffle.route_all_to(0);
    const PlanOptions bounded{.max_rows = 13, .overflow = Overflow::drop};
    shuffle.plan(bounded);
    (void)shuffle.current_plan().read();
    const Tensor sums = shuffle.engine().allocate(f32, SmallShuffle::kTokens, SmallShuffle::kHidden);
    const Graph graph(shuffle.engine().stream(), [&] {
      shuffle.plan(bounded);
      (void)shuffle.dispatch();
      (void)shuffle.combine({.out = sums});
    });
    for (int turn = 0; turn < 3; ++turn) {
      poison(shuffle.engine(), sums);
      world.barrier();
      graph.replay();
      const std::vector<float> values = floats_of(shuffle.engine(), sums);
      for (std::size_t token = 0; token < SmallShuffle::kTokens; ++token)
        EXPECT_EQ(values[token * SmallShuffle::kHidden] != 0, world.rank().value != 1 || token < 5) << token;
      EXPECT_TRUE(shuffle.current_plan().read().overflowed);
    }
    world.barrier();
  });
}

TEST_F(DeviceGraph, ARankThatReplaysLessOftenIsNamedAndOutputsArePoisoned) {
  on_ranks(2, [](World& world) {
    SmallShuffle shuffle(world, kDeviceThreads, std::chrono::milliseconds(300), "layer 4");
    shuffle.plan();
    Engine& engine = shuffle.engine();
    const Graph graph(engine.stream(), [&] { (void)shuffle.dispatch(); });
    graph.replay();
    require(!all_are(bytes_of(engine, shuffle.rows()), std::byte{0xff}), "rows have come");
    require(*engine.fault_word() == 0, "there is no fault");
    engine.check();
    if (world.rank().value == 0) {
      graph.replay();
      require_error([&] { (void)shuffle.current_plan().read(); }, ErrorCode::deadline,
                    "rank 1 did not reach the barrier");
      require(all_are(bytes_of(engine, shuffle.rows()), std::byte{0xff}), "rows are poisoned");
      require(*engine.fault_word() != 0, "kernels see the fault");
      require_error([&] { engine.check(); }, ErrorCode::deadline,
                    "dispatch of 'layer 4': rank 1 did not reach the barrier");
    }
    world.barrier();
  });
}

// Rows that came with the plan are written without asking once more.
TEST_F(DeviceGraph, OneThatIsLateWritesNoMemoryOfOthers) {
  constexpr std::chrono::seconds kDeadline(1);  // ranks replay at the same time, but for the delay
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    on_ranks(2, [&](World& world) {
      preload_stream_work();
      // Engines on streams of their own: the lender's is not held up.
      const auto stream = device::make_stream();
      SmallShuffle lender(world, kDeviceThreads);
      std::optional<SmallShuffle> shuffle(std::in_place, world, kDeviceThreads, kDeadline, "", stream.get());
      shuffle->plan({.layout = layout, .max_rows = 16});
      (void)shuffle->current_plan().read();
      const bool is_late = world.rank().value == 1;
      {
        const Graph graph(shuffle->engine().stream(), [&] {
          shuffle->plan(
              {.layout = layout, .max_rows = 16, .rows = shuffle->engine().allocate(f32, 16, SmallShuffle::kHidden)});
          if (is_late) delay(3 * kDeadline, 1, shuffle->engine().stream());
          (void)shuffle->dispatch();
        });
        world.barrier();
        graph.replay();
        const auto give_up = [&] {
          require_error([&] { (void)shuffle->current_plan().read(); }, ErrorCode::deadline,
                        "rank 1 did not reach the barrier");
          shuffle.reset();
        };
        come_late(world, lender.engine(), is_late, give_up, [&] {
          require(cudaStreamQuery(shuffle->engine().stream()) == cudaErrorNotReady, "dispatch is still to come");
          (void)cudaGetLastError();  // which is no error
          (void)shuffle->current_plan().read();
        });
      }
      world.barrier();
    });
}

TEST_F(DeviceGraph, RefusesWhatTheHostWouldHaveToWaitFor) {
  on_ranks(1, [&](World& world) {
    SmallShuffle shuffle(world, kDeviceThreads);
    shuffle.plan();
    Engine& engine = shuffle.engine();
    const HostRows x(f32, SmallShuffle::kTokens, SmallShuffle::kHidden);
    const auto refuses = [](const std::function<void()>& call, const char* why) {
      require_error(call, ErrorCode::invalid_argument, why);
    };
    std::optional<Ticket<Rows>> ticket;
    const Graph graph(engine.stream(), [&] {
      refuses([&] { (void)shuffle.current_plan().read(); }, "the host can't wait");
      refuses([&] { engine.copy(shuffle.x(), shuffle.x()); }, "the host can't wait");
      refuses([&] { engine.leave_out({}); }, "the host can't wait");
      refuses([&] { (void)engine.dispatch(shuffle.current_plan(), x.tensor()); }, "needs whole tensors");
      ticket.emplace(shuffle.dispatch());
      require(!ticket->done(), "nothing is done while it is captured");
      refuses([&] { (void)ticket->wait(); }, "the host can't wait");
      ticket.reset();
    });
    // What throws in a capture leaves the stream usable.
    refuses([&] { const Graph ended(engine.stream(), [&] { shuffle.plan(); }); }, "what is captured needs max_rows");
    shuffle.round_trip();
  });
}

TEST_F(DeviceGraph, RefusesRowsThatWouldNeedACopy) {
  on_ranks(1, [&](World& world) {
    SmallShuffle shuffle(world, kDeviceThreads);
    shuffle.plan({.max_rows = 16});
    Engine& engine = shuffle.engine();
    Tensor elsewhere = engine.allocate(f32, 17, SmallShuffle::kHidden);
    elsewhere.data += sizeof(float);  // where no block begins
    elsewhere.rows = 16;
    const Tensor& x = shuffle.x();
    Tensor strided = engine.allocate(f32, SmallShuffle::kTokens, 2 * SmallShuffle::kHidden);
    strided.row_stride = std::exchange(strided.cols, SmallShuffle::kHidden);
    const Plan& plan = shuffle.current_plan();
    const auto refuses = [](const std::function<void()>& call) {
      require_error(call, ErrorCode::invalid_argument, "Engine::allocate");
    };
    const Graph graph(engine.stream(), [&] {
      refuses([&] { (void)engine.dispatch(plan, x, {.out = elsewhere}); });
      refuses([&] { (void)engine.dispatch(plan, strided); });
      refuses([&] { (void)engine.combine(plan, elsewhere); });
      refuses([&] { (void)engine.dispatch_backward(plan, elsewhere); });
      refuses([&] { (void)engine.combine_backward(plan, x, elsewhere); });
    });
    (void)engine.dispatch(plan, x, {.out = elsewhere}).wait();  // at a copy's cost
    shuffle.round_trip();
  });
}

// A dropped ticket lets the stream that its call was given wait: else the capture would end with work that has not come
// back to it.
TEST_F(DeviceGraph, OfACallersStreamHoldsWhatTicketsThatWereDroppedHaveDone) {
  on_ranks(2, [](World& world) {
    const auto callers = device::make_stream();
    SmallShuffle shuffle(world, kDeviceThreads);
    shuffle.plan({.max_rows = 16});
    (void)shuffle.current_plan().read();
    Engine& engine = shuffle.engine();
    const Tensor sums = engine.allocate(f32, SmallShuffle::kTokens, SmallShuffle::kHidden);
    const Graph graph(callers.get(), [&] {
      (void)shuffle.dispatch(callers.get());
      (void)shuffle.combine({.out = sums, .stream = callers.get()});
    });
    poison(engine, sums);
    world.barrier();
    graph.replay();
    device::check(cudaStreamSynchronize(callers.get()), "replay");
    require(bytes_of(engine, sums) == bytes_of(engine, shuffle.x()), "every token came back");
    world.barrier();
  });
}

TEST_F(DeviceGraph, OfACallersStreamRefusesWhatOneOfTheEnginesStreamRefuses) {
  on_ranks(1, [](World& world) {
    const auto callers = device::make_stream();
    const StepShape shape{.map = ExpertMap::contiguous(2, 1)};
    Engine engine(world, kDeviceThreads.options(shape.options()));
    const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, shape.hidden);
    const Plan padded = engine.plan({}, shape.map, shape.plan());
    (void)engine.dispatch(padded, nothing).wait();
    (void)device::capture(callers.get(), [&] {
      require_error([&] { (void)engine.plan({}, shape.map, {.stream = callers.get()}); }, ErrorCode::invalid_argument,
                    "what is captured needs max_rows");
      require_error([&] { (void)engine.combine(padded, engine.expert_out(padded), {.stream = callers.get()}); },
                    ErrorCode::invalid_argument, "a dispatch in the same capture");
    });
    (void)engine.combine(padded, engine.expert_out(padded)).wait();
    (void)engine.dispatch(engine.plan({}, shape.map), nothing).wait();
  });
}

// One to the experts and two back: waiting for the others, and the sum.
TEST_F(DeviceGraph, OfPaddedRowsHoldsFewKernels) {
  on_ranks(1, [](World& world) {
    for (const DType dtype : {bf16, fp8_e4m3}) {
      Engine engine(world, kDeviceThreads.options({.hidden = 8, .dtype = dtype}));
      const StepShape shape{.map = ExpertMap::contiguous(2, 1), .max_tokens = 4};
      const Tensor x = engine.allocate(bf16, 4, 8);
      const Tensor out = engine.allocate(bf16, 4, 8);
      const Tensor experts = engine.allocate(f32, 4, 1);
      write(engine, std::vector<std::int32_t>{0, 1, 0, 1}, experts);
      const Routing routing{.experts = std::span(reinterpret_cast<const std::int32_t*>(experts.data), 4),
                            .memory = engine.memory()};
      const Plan plan = engine.plan(routing, shape.map, shape.plan());
      const auto kernels = [&](const std::function<void()>& work) {
        return blocks_of_kernels(engine.stream(), work).size();
      };
      EXPECT_EQ(kernels([&] { (void)engine.plan(routing, shape.map, shape.plan()); }), 0u);
      const std::size_t to_quantise = dtype == fp8_e4m3 ? 1 : 0;
      EXPECT_EQ(kernels([&] { (void)engine.dispatch(plan, x); }), to_quantise + 2);
      EXPECT_EQ(kernels([&] {
                  (void)engine.dispatch(plan, x);
                  (void)engine.combine(plan, engine.expert_out(plan), {.out = out});
                }),
                to_quantise + 5);
    }
  });
}

TEST_F(DeviceGraph, OfPaddedRowsHoldsBothHalvesOrTheNextCallIsAnError) {
  on_ranks(1, [](World& world) {
    const StepShape shape{.map = ExpertMap::contiguous(2, 1)};
    Engine engine(world, kDeviceThreads.options(shape.options()));
    const Plan plan = engine.plan({}, shape.map, shape.plan());
    const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, shape.hidden);
    std::optional<Ticket<Rows>> ticket;
    {
      const Graph graph(engine.stream(), [&] { ticket.emplace(engine.dispatch(plan, nothing)); });
    }
    require_error([&] { (void)ticket->wait_on(engine.stream()); }, ErrorCode::invalid_argument, "is captured");
    ticket.reset();
    require_error([&] { (void)engine.dispatch(plan, nothing); }, ErrorCode::invalid_argument, "capture");
    (void)engine.dispatch(plan, nothing).wait();  // what was captured does not count
    (void)engine.combine(plan, engine.expert_out(plan)).wait();
  });
}

TEST_F(DeviceGraph, FollowsWhenRanksAreLeftOut) {
  constexpr RankId kLost(2);
  const StepShape shape = shape_with_copies_on(kLost);
  const std::vector<std::int64_t> num_tokens = {16, 9, 14, 1};
  on_ranks(kRanks, [&](World& world) {
    StepGraph graph(world, make_engine(world, kDeviceThreads, shape), shape, num_tokens);
    graph.load_and_replay(draw_step(3, shape, num_tokens));
    if (world.rank() != kLost) graph.engine().leave_out(std::span(&kLost, 1));
    for (std::uint64_t seed = 4; seed < 7; ++seed) {
      const ShuffleCase step = without_ranks(draw_step(seed, shape, num_tokens), {kLost});
      if (world.rank() != kLost) {
        graph.load_and_replay(step);
      } else {
        world.barrier();
        world.barrier();
      }
    }
  });
}

// Its kernels would write to the rank that was left out.
TEST_F(DeviceGraph, OfRowsThatAreNotPaddedFailsWhenARankWasLeftOut) {
  constexpr RankId kLost(2);
  const StepShape shape = shape_of(Layout::expert_major);
  const std::vector<std::int64_t> num_tokens(kRanks, 8);
  on_ranks(kRanks, [&](World& world) {
    StepGraph whole(world, make_engine(world, kDeviceThreads, shape), shape, num_tokens);
    SmallShuffle shuffle(world, kDeviceThreads);
    shuffle.plan({.max_rows = 64});
    const Graph dispatch(shuffle.engine().stream(), [&] { (void)shuffle.dispatch(); });
    whole.load_and_replay(draw_step(1, shape, num_tokens));
    dispatch.replay();
    device::check(cudaStreamSynchronize(shuffle.engine().stream()), "wait for a graph");
    world.barrier();
    if (world.rank() != kLost) {
      const auto fails = [&](Engine& engine, const auto& graph) {
        engine.leave_out(std::span(&kLost, 1));
        graph.replay();
        device::check(cudaStreamSynchronize(engine.stream()), "wait for a graph");
        require_error([&] { engine.check(); }, ErrorCode::unsupported, "rank 2 was left out");
      };
      fails(whole.engine(), whole);
      fails(shuffle.engine(), dispatch);
      require(all_are(bytes_of(shuffle.engine(), shuffle.rows()), std::byte{0xff}), "rows are poisoned");
    }
    world.barrier();
  });
}

TEST(DeviceFewSms, HaveABlockEachAndNoMore) {
  SHUNT_NEEDS(kDeviceFewSms);
  constexpr std::int64_t kManyTokens = 500;
  ASSERT_NO_THROW(kDeviceFewSms.run(1, [&](World& world) {
    Engine engine(world, kDeviceFewSms.options({.hidden = 512}, small_device(kManyTokens)));
    const std::vector<std::int32_t> experts(kManyTokens, 0);
    const Plan plan = engine.plan({.experts = experts}, ExpertMap::contiguous(1, 1), {.max_rows = kManyTokens});
    const Tensor x = engine.allocate(bf16, kManyTokens, 512);
    const Tensor rows = engine.allocate(bf16, kManyTokens, 512);
    const auto expect_few = [&](const char* operation, const std::function<void()>& work) {
      EXPECT_THAT(blocks_of_kernels(engine.stream(), work), ::testing::UnorderedElementsAre(1, kDeviceFewSms.sms, 1))
          << operation;
    };
    expect_few("dispatch", [&] { (void)engine.dispatch(plan, x, {.out = rows}); });
    expect_few("combine", [&] { (void)engine.combine(plan, rows, {.out = x}); });
    expect_few("dispatch_backward", [&] { (void)engine.dispatch_backward(plan, rows, {.out = x}); });
  }));
}

}  // namespace
}  // namespace shunt::test
