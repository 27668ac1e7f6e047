// What ranks do wrong on a device: the others are told, the device stays usable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/cuda/captured_graph.hpp"
#include "engine/cuda/small_shuffle.hpp"
#include "shunt/device_decoder.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

using Body = std::function<void(World&, SmallShuffle&)>;

void on_ranks(std::int32_t num_ranks, const Body& body, std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  ASSERT_NO_THROW(World::spawn(num_ranks, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    {
      SmallShuffle shuffle(world, heap, deadline);
      body(world, shuffle);
      world.barrier();
    }
    // Whatever happened, another engine works.
    SmallShuffle after(world, heap, std::chrono::seconds(20));
    after.round_trip();
    world.barrier();
  }));
}

constexpr std::chrono::milliseconds kSoon(300);

TEST(DeviceFault, ARankThatNeverComesIsNamedByAllOthers) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(
      4,
      [](World& world, SmallShuffle& shuffle) {
        shuffle.plan();
        if (world.rank().value == 2) return;
        const auto begin = std::chrono::steady_clock::now();
        require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::deadline, "rank 2 did not come");
        require(std::chrono::steady_clock::now() - begin < 30 * kSoon, "the deadline is not another one");
        require_error([&] { (void)shuffle.dispatch(); }, ErrorCode::deadline, "rank 2 did not come");
      },
      kSoon);
}

/// What kernels of experts see, whatever the host knows.
std::vector<std::int32_t> counts_on_device(SmallShuffle& shuffle) {
  const DevicePlan& plan = shuffle.current_plan();
  return download_as(plan.expert_counts(), static_cast<std::size_t>(plan.num_local_experts()),
                     shuffle.engine().stream());
}

TEST(DeviceFault, AFailedPlanHasNoRowsOnTheDevice) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(
      2,
      [](World& world, SmallShuffle& shuffle) {
        for (int i = 0; i < 2; ++i) shuffle.plan({.max_rows = 100});
        EXPECT_THAT(counts_on_device(shuffle), ::testing::Each(4));
        if (world.rank().value == 1) return;
        shuffle.plan({.max_rows = 100});  // in the memory of the first
        EXPECT_THAT(counts_on_device(shuffle), ::testing::Each(0));
        require_error([&] { (void)shuffle.dispatch(); }, ErrorCode::deadline, "rank 1 did not come");
      },
      kSoon);
}

TEST(DeviceFault, WhatFollowsAFailedPlanReadsNothingOfIt) {
  SHUNT_NEEDS_DEVICE();
  // Recycled memory may hold anything: ranks that don't exist, beyond and before those that do.
  for (const int pattern : {0x3f, 0xa5})
    on_ranks(
        2,
        [&](World& world, SmallShuffle& shuffle) {
          shuffle.poison_heap(pattern);
          if (world.rank().value == 1) return;
          shuffle.plan({.max_rows = 100});
          auto dispatched = shuffle.dispatch();
          auto combined = shuffle.combine();
          require_error([&] { (void)combined.wait(); }, ErrorCode::deadline, "rank 1 did not come");
        },
        kSoon);
}

/// Most of a heap, with poison in it.
class Bystander {
 public:
  explicit Bystander(const DeviceHeap& heap) : memory_(heap.allocate(f32, 1, (15 << 20) / 4)) {
    poison(memory_.data, memory_.bytes(), nullptr);
  }
  void check() const {
    for (const std::byte byte : download(memory_.data, memory_.bytes(), nullptr))
      require(byte == std::byte{0xa5}, "nobody has written here");
  }

 private:
  Tensor memory_;
};

TEST(DeviceFault, ARankThatComesLateWritesNoMemoryOfOthers) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(2, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    std::optional<SmallShuffle> shuffle(std::in_place, world, heap, kSoon);
    shuffle->plan();
    world.barrier();
    std::optional<Bystander> bystander;
    if (world.rank().value == 0) {
      require_error([&] { (void)shuffle->dispatch().wait(); }, ErrorCode::deadline, "rank 1 did not come");
      shuffle.reset();
      bystander.emplace(heap);
    }
    world.barrier();
    if (world.rank().value == 1) {
      auto late = shuffle->dispatch();
      require_error([&] { (void)late.wait(); }, ErrorCode::deadline, "rank 0 did not come");
    }
    world.barrier();
    if (bystander) bystander->check();
    world.barrier();
  }));
}

// Rows that came with the plan are written without asking once more.
TEST(DeviceFault, AGraphThatIsLateWritesNoMemoryOfOthers) {
  SHUNT_NEEDS_DEVICE();
  constexpr std::chrono::seconds kDeadline(1);  // ranks replay at the same time, but for the delay
  for (const Layout layout : {Layout::expert_major, Layout::token_unique})
    ASSERT_NO_THROW(World::spawn(2, [&](World& world) {
      const DeviceHeap heap(world, {.bytes = 16 << 20});
      std::optional<SmallShuffle> shuffle(std::in_place, world, heap, kDeadline);
      shuffle->plan({.layout = layout, .max_rows = 16});
      (void)shuffle->current_plan().sizes();
      preload_stream_work();
      const bool is_late = world.rank().value == 1;
      {
        const device::CapturedGraph graph(shuffle->engine().stream(), [&] {
          shuffle->plan({.layout = layout, .max_rows = 16, .rows = heap.allocate(f32, 16, SmallShuffle::kHidden)});
          if (is_late) delay(3 * kDeadline, 1, shuffle->engine().stream());
          (void)shuffle->dispatch();
        });
        world.barrier();
        graph.replay();
        std::optional<Bystander> bystander;
        if (!is_late) {
          require_error([&] { (void)shuffle->current_plan().sizes(); }, ErrorCode::deadline, "rank 1 did not come");
          shuffle.reset();
          bystander.emplace(heap);
        }
        world.barrier();
        if (is_late) {
          require(cudaStreamQuery(shuffle->engine().stream()) == cudaErrorNotReady, "dispatch is still to come");
          (void)cudaGetLastError();  // which is no error
          (void)shuffle->current_plan().sizes();
        }
        world.barrier();
        if (bystander) bystander->check();
      }
      world.barrier();
    }));
}

TEST(DeviceFault, RanksThatCallDifferentOperationsAreNamed) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(
      2,
      [](World& world, SmallShuffle& shuffle) {
        shuffle.plan();
        const bool is_first = world.rank().value == 0;
        const auto call = [&] { is_first ? (void)shuffle.dispatch().wait() : (void)shuffle.combine().wait(); };
        require_error(call, ErrorCode::mismatch,
                      is_first ? "rank 0 called dispatch, rank 1 combine" : "rank 1 called combine, rank 0 dispatch");
      },
      kSoon);
}

TEST(DeviceFault, RowsThatOnlySomeRanksGiveToTheirPlanAreNamed) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(2, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::seconds(20));
    const Tensor rows = heap.allocate(f32, 16, SmallShuffle::kHidden);
    const bool is_first = world.rank().value == 0;
    shuffle.plan({.max_rows = 16, .rows = is_first ? rows : Tensor()});
    require_error([&] { (void)shuffle.current_plan().sizes(); }, ErrorCode::mismatch,
                  is_first ? "rank 0 called plan, rank 1 plan with other options"
                           : "rank 1 called plan, rank 0 plan with other options");
    world.barrier();
  }));
}

TEST(DeviceFault, RowsBeyondTheBoundAreAnErrorOnAllRanks) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(3, [](World&, SmallShuffle& shuffle) {
    shuffle.route_all_to(0);
    shuffle.plan({.max_rows = 23});
    require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::invalid_argument,
                  "24 rows, more than max_rows = 23");
  });
}

TEST(DeviceFault, RowsBeyondTheBoundAreDroppedIfAsked) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(3, [](World& world, SmallShuffle& shuffle) {
    shuffle.route_all_to(0);
    shuffle.plan({.max_rows = 21, .overflow = Overflow::drop});
    const DevicePlan::Sizes sizes = shuffle.current_plan().sizes();
    EXPECT_TRUE(sizes.overflowed);
    EXPECT_EQ(sizes.num_rows, world.rank().value == 0 ? 21 : 0);
    // Slots 21 to 23 are the last rank's last tokens.
    const std::vector<float> sums = shuffle.sums();
    for (std::int64_t token = 0; token < SmallShuffle::kTokens; ++token)
      EXPECT_EQ(sums[static_cast<std::size_t>(token)] != 0, world.rank().value != 2 || token < 5) << token;
  });
}

// Six experts of 2^30 rows each: slots in 32 bits would be those of other experts, or negative.
TEST(DeviceFault, RowsBeyond32BitsAreDroppedOrAnError) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    constexpr std::int32_t kExperts = 6;
    const DeviceEngineOptions options{.hidden = 4, .dtype = f32, .max_tokens = kExperts};
    Arena arena(1 << 16);
    std::vector<std::int32_t> experts;
    std::vector<float> x;
    for (std::int32_t token = 0; token < kExperts; ++token) {
      experts.push_back(token);
      x.insert(x.end(), 4, static_cast<float>(1 + token));
    }
    const DeviceRouting routing{.experts = arena.put(experts), .num_tokens = kExperts};
    const ExpertMap map = ExpertMap::contiguous(kExperts, 1);
    const ConstTensor tokens = borrow(static_cast<const void*>(arena.put(x)), f32, kExperts, 4);
    {
      DeviceEngine engine(world, heap, options);
      const DevicePlan plan =
          engine.plan(routing, map, {.alignment = 1 << 30, .max_rows = 8, .overflow = Overflow::drop});
      EXPECT_TRUE(plan.sizes().overflowed);
      const DeviceRows rows = engine.dispatch(plan, tokens).wait();
      const Tensor sums = engine.combine(plan, rows.rows).wait();
      std::vector<float> expected(x.size());
      std::fill_n(expected.begin(), 4, 1.0f);
      EXPECT_EQ(download_as(reinterpret_cast<const float*>(sums.data), x.size(), engine.stream()), expected);
    }
    DeviceEngine engine(world, heap, options);
    require_error([&] { (void)engine.plan(routing, map, {.alignment = 1 << 30}); }, ErrorCode::invalid_argument,
                  "more than max_rows");
  }));
}

TEST(DeviceFault, AnExpertThatDoesNotExistIsNamedByAllRanks) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(3, [](World& world, SmallShuffle& shuffle) {
    if (world.rank().value == 1) {
      shuffle.route(3, 77);
      require_error([&] { shuffle.plan(); }, ErrorCode::invalid_argument, "token 3: expert 77");
    } else {
      require_error([&] { shuffle.plan(); }, ErrorCode::peer_failed, "rank 1 failed: token 3: expert 77");
    }
  });
}

TEST(DeviceFault, ABadEntryIsNamedWhereExpertsHaveSeveralCopies) {
  SHUNT_NEEDS_DEVICE();
  const ExpertMap map = ExpertMap::from_placement(4, {{0, 1, 2}, {0, 1, 3}});
  // Twice an expert with several copies, twice one with a single copy, one that does not exist.
  for (const auto& [bad, named] :
       {std::pair(std::vector{0, 2, 0}, "token 1: expert 0"), std::pair(std::vector{1, 3, 3}, "token 1: expert 3"),
        std::pair(std::vector{1, 4, 0}, "token 1: expert 4")})
    ASSERT_NO_THROW(World::spawn(2, [&](World& world) {
      const DeviceHeap heap(world, {.bytes = 16 << 20});
      DeviceEngine engine(world, heap, {.hidden = 8, .dtype = f32, .max_tokens = 2});
      std::vector<std::int32_t> experts = {0, 1, 2, 3, 1, 0};
      if (world.rank().value == 1) std::ranges::copy(bad, experts.begin() + 3);
      Arena arena(4096);
      const DeviceRouting routing{.experts = arena.put(experts), .num_tokens = 2, .topk = 3};
      require_error([&] { (void)engine.plan(routing, map); },
                    world.rank().value == 1 ? ErrorCode::invalid_argument : ErrorCode::peer_failed, named);
      world.barrier();
    }));
}

// Were the world not asked, the test would time out.
TEST(DeviceFault, ARankThatFailsIsNotWaitedForUntilTheDeadline) {
  SHUNT_NEEDS_DEVICE();
  EXPECT_THROW(World::spawn(3,
                            [](World& world) {
                              const DeviceHeap heap(world, {.bytes = 16 << 20});
                              SmallShuffle shuffle(world, heap, std::chrono::hours(1));
                              shuffle.plan();
                              if (world.rank().value == 1) throw std::logic_error("no more coffee");
                              for (int turn = 0; turn < 2; ++turn)
                                require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::peer_failed,
                                              "no more coffee");
                            }),
               std::logic_error);
}

TEST(DeviceFault, ARankThatLeavesIsNotWaitedForUntilTheDeadline) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(3, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle shuffle(world, heap, std::chrono::hours(1));
    shuffle.plan();
    if (world.rank().value == 1) return;
    require_error([&] { (void)shuffle.dispatch().wait(); }, ErrorCode::peer_lost, "rank 1");
  }));
}

TEST(DeviceFault, WhatTheCallerDoesWrongIsToldAtOnceAndMayBeRepeated) {
  SHUNT_NEEDS_DEVICE();
  on_ranks(2, [](World&, SmallShuffle& shuffle) {
    require_error([&] { shuffle.plan({.layout = Layout::padded}); }, ErrorCode::invalid_argument, "padded");
    require_error([&] { shuffle.plan({.layout = Layout::token_unique, .overflow = Overflow::drop}); },
                  ErrorCode::invalid_argument, "dropping rows needs expert_major");
    shuffle.plan();
    require_error([&] { (void)shuffle.dispatch_wrong_rows(); }, ErrorCode::invalid_argument, "x is [7, 64]");
    shuffle.round_trip();
  });
}

TEST(DeviceFault, RowsThatCantComeWithAPlanAreRefused) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    Arena arena(1 << 20);
    const Tensor experts = heap.allocate(f32, 3, 1);
    poison(experts.data, experts.bytes(), nullptr, 0);
    const auto in_heap = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
      return heap.allocate(dtype, rows, cols);
    };
    const auto elsewhere = [&](DType dtype, std::int64_t rows, std::int64_t cols) {
      Tensor tensor{nullptr, dtype, rows, cols, nullptr};
      tensor.data = arena.take(tensor.bytes());
      return tensor;
    };
    const auto shuffle = [&](DType dtype, const DevicePlanOptions& options, const DeviceDispatchOptions& dispatch) {
      DeviceEngine engine(world, heap, {.hidden = 130, .dtype = dtype, .max_tokens = 3});
      const DevicePlan plan =
          engine.plan({.experts = reinterpret_cast<const std::int32_t*>(experts.data), .num_tokens = 3},
                      ExpertMap::contiguous(2, 1), options);
      (void)engine.dispatch(plan, in_heap(bf16, 3, 130), dispatch).wait();
    };
    const auto refuses = [&](DType dtype, const DevicePlanOptions& options, const char* why,
                             const DeviceDispatchOptions& dispatch = {}) {
      require_error([&] { shuffle(dtype, options, dispatch); }, ErrorCode::invalid_argument, why);
    };
    const Tensor rows = in_heap(bf16, 4, 130);
    const Tensor fp8_rows = in_heap(fp8_e4m3, 4, 130);
    const Tensor scales = in_heap(f32, 4, 2);
    shuffle(bf16, {.max_rows = 4, .rows = rows}, {});
    shuffle(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows, .row_scales = scales}, {});
    refuses(bf16, {.rows = rows}, "rows need max_rows");
    refuses(bf16, {.max_rows = 3, .rows = rows}, "rows is [4, 130], expected [3, 130]");
    refuses(bf16, {.max_rows = 4, .rows = in_heap(f32, 4, 130)}, "rows is f32, expected bf16");
    refuses(bf16, {.max_rows = 4, .rows = elsewhere(bf16, 4, 130)}, "rows did not come from DeviceHeap::allocate");
    refuses(bf16, {.max_rows = 4, .row_scales = scales}, "row_scales without rows");
    refuses(bf16, {.max_rows = 4, .rows = rows, .row_scales = scales}, "row_scales come with fp8 rows");
    refuses(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows}, "row_scales come with fp8 rows");
    refuses(fp8_e4m3, {.max_rows = 4, .rows = fp8_rows, .row_scales = elsewhere(f32, 4, 2)},
            "row_scales did not come from DeviceHeap::allocate");
    refuses(bf16, {.max_rows = 4, .rows = rows}, "it takes no out", {.out = rows});
  }));
}

TEST(DeviceFault, DispatchesOfFp8WithoutTheirScalesAreRefused) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    const Tensor nowhere = heap.allocate(f32, 3, 1);
    const std::array<std::int32_t, 3> experts = {-1, -1, -1};
    upload(nowhere.data, std::as_bytes(std::span(experts)), nullptr);
    const auto dispatch = [&](DType rows, DType x, const ConstTensor& scales) {
      DeviceEngine engine(world, heap, {.hidden = 130, .dtype = rows, .max_tokens = 3});
      const DevicePlan plan =
          engine.plan({.experts = reinterpret_cast<const std::int32_t*>(nowhere.data), .num_tokens = 3},
                      ExpertMap::contiguous(2, 1));
      (void)engine.dispatch(plan, heap.allocate(x, 3, 130), {.scales = scales}).wait();
    };
    const auto refuses = [&](DType rows, DType x, const ConstTensor& scales, const char* why) {
      require_error([&] { dispatch(rows, x, scales); }, ErrorCode::invalid_argument, why);
    };
    const auto scales = [&](std::int64_t cols) { return heap.allocate(f32, 3, cols); };
    dispatch(fp8_e4m3, bf16, {});
    dispatch(fp8_e4m3, fp8_e4m3, scales(2));
    refuses(fp8_e4m3, fp8_e4m3, {}, "fp8 x needs f32 scales [3, 2], got f32 [0, 0]");
    refuses(fp8_e4m3, fp8_e4m3, scales(1), "fp8 x needs f32 scales [3, 2], got f32 [3, 1]");
    refuses(fp8_e4m3, f16, scales(2), "scales given, but x is f16");
    refuses(bf16, fp8_e4m3, scales(2), "x is fp8_e4m3, expected bf16");
    DeviceDecoder decoder(world, heap, ExpertMap::contiguous(2, 1),
                          {.hidden = 130, .dtype = fp8_e4m3, .max_tokens = 3});
    const DeviceRouting routing{.experts = reinterpret_cast<const std::int32_t*>(nowhere.data), .num_tokens = 3};
    require_error([&] { (void)decoder.dispatch(routing, heap.allocate(fp8_e4m3, 3, 130)); }, ErrorCode::unsupported,
                  "expected f32, bf16 or f16");
  }));
}

}  // namespace
}  // namespace shunt::test
