// Devices between nodes when something goes wrong, where the device is host memory.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <thread>

#include "engine/cuda/cluster/nccl_network.hpp"
#include "engine/cuda/host_lane.hpp"
#include "engine/cuda/nccl_of_threads.hpp"

namespace shunt::test {
namespace {

constexpr std::int64_t kHidden = 64;

SpawnOptions two_islands() {
  SpawnOptions options{.kind = WorldKind::islands, .topology = Topology::virtual_nodes(2, 2)};
  options.environment.deadline = std::chrono::seconds(20);
  return options;
}

/// Token t of every rank goes to the expert of rank t. All elements of a token are 1 + t.
class OnHost {
 public:
  explicit OnHost(World& world, const std::optional<NcclOfThreadsId>& nccl = {})
      : size_(static_cast<std::size_t>(world.size())) {
    lane = std::make_shared<HostLane>(world, HostLane::Buffers{1 << 14, 2}, world.rank().index());
    std::shared_ptr<device::NcclNetwork> network;
    if (nccl) network = make_nccl_of_threads(world, *lane, *nccl);
    engine.emplace(engine_on_host(world, {.hidden = kHidden, .dtype = f32}, lane, network));
    std::vector<std::int32_t> experts;
    for (std::size_t token = 0; token < size_; ++token) {
      experts.push_back(static_cast<std::int32_t>(token));
      x_.insert(x_.end(), kHidden, static_cast<float>(1 + token));
    }
    plan = engine->plan({.experts = experts}, ExpertMap::contiguous(world.size(), world.size()));
  }

  [[nodiscard]] ConstTensor x() {
    return Tensor{reinterpret_cast<std::byte*>(x_.data()), f32, static_cast<std::int64_t>(size_), kHidden, nullptr};
  }

  std::shared_ptr<HostLane> lane;
  std::optional<Engine> engine;
  Plan plan;

 private:
  std::size_t size_;
  std::vector<float> x_;
};

TEST(ClusterFaultOnHost, AnErrorIsThrownWhenTheDeviceUsesNoneOfTheCallersMemoryAnyMore) {
  std::atomic<int> num_errors{0};
  std::latch planned(2);  // a barrier of the world's would hear of the fault
  const auto run = [&](World& world) {
    OnHost rank(world);
    Transport& transport = world.impl()->fabric->transport();
    planned.arrive_and_wait();
    if (world.rank().value == 1) return;
    // Everything comes after this.
    rank.lane->put([&, polls = 0]() mutable { return transport.fault() && ++polls > 100; });
    const Tensor rows = rank.engine->expert_out(rank.plan);
    auto ticket = rank.engine->dispatch(rank.plan, rank.x(), {.out = rows});
    transport.report(ErrorCode::peer_failed, RankId(0), "on purpose");
    EXPECT_THROW((void)ticket.wait(), Error);
    EXPECT_TRUE(rank.lane->is_idle());
    EXPECT_TRUE(rank.lane->has_kept(rows.data));  // others' devices may be later
    ++num_errors;
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_EQ(num_errors, 1);
}

TEST(ClusterFaultOnHost, NcclThatWaitsForARankIsAbortedBeforeTheErrorIsThrown) {
  std::atomic<int> num_errors{0};
  const auto run = [&](World& world) {
    OnHost rank(world, NcclOfThreadsId{1'000'000, NcclTrouble::refused_group, 1});
    EXPECT_THROW((void)rank.engine->dispatch(rank.plan, rank.x()).wait(), Error);
    EXPECT_TRUE(rank.lane->is_idle());
    ++num_errors;
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_EQ(num_errors, 2);
}

TEST(ClusterFaultOnHost, WhatNcclReportsAfterTheLastRoundIsAnError) {
  std::atomic<int> num_errors{0};
  const auto run = [&](World& world) {
    OnHost rank(world, NcclOfThreadsId{1'000'001, NcclTrouble::lost_group, 1});
    try {
      (void)rank.engine->dispatch(rank.plan, rank.x()).wait();
    } catch (const Error& error) {
      num_errors += error.code() == ErrorCode::system;
    }
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_EQ(num_errors, 2);
}

TEST(ClusterFaultOnHost, NcclIsNotStartedBeforeAllPeersAreHere) {
  std::atomic<bool> is_free{false};
  const auto run = [&](World& world) {
    OnHost rank(world, NcclOfThreadsId{1'000'002});
    const std::uint64_t before = num_nccl_groups();
    world.barrier();
    if (world.rank().value == 1) {
      // Rank 0 has long launched what it can.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      is_free = num_nccl_groups() == before;
    }
    EXPECT_NO_THROW((void)rank.engine->dispatch(rank.plan, rank.x()).wait());
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_TRUE(is_free);
}

TEST(NcclNetworkOnHost, JoinsByTheIdOfRank0) {
  const auto run = [](World& world) {
    const auto network = device::NcclNetwork::join(
        world, 256, [](std::size_t) { return nullptr; }, nccl_of_threads);
    EXPECT_TRUE(network->is_idle());
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
}

TEST(NcclNetworkOnHost, AllRanksHearWhatOneOfThemLacks) {
  std::atomic<int> num_errors{0};
  const auto run = [&](World& world) {
    const auto load = [&]() -> const nccl::Library& {
      if (world.rank().value == 1) throw Error(ErrorCode::unsupported, "no such library");
      return nccl_of_threads();
    };
    try {
      (void)device::NcclNetwork::join(
          world, 256, [](std::size_t) { return nullptr; }, load);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_STREQ(error.what(), "rank 1 can't join by NCCL: no such library");
      ++num_errors;
    }
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_EQ(num_errors, 2);
}

TEST(NcclNetworkOnHost, BatchesOfOtherSizesAreAMismatch) {
  std::atomic<int> num_errors{0};
  const auto run = [&](World& world) {
    try {
      (void)device::NcclNetwork::join(
          world, 256 * (1 + world.rank().index()), [](std::size_t) { return nullptr; }, nccl_of_threads);
    } catch (const Error& error) {
      num_errors += error.code() == ErrorCode::mismatch;
    }
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
  EXPECT_EQ(num_errors, 2);
}

TEST(NcclCommunicator, LeavesNoGroupOpenWhenASendIsRefused) {
  const NcclOfThreadsId id{1'000'003, NcclTrouble::refused_send, 0};
  nccl::Communicator communicator(nccl_of_threads(), {RankId(0), 2, id.pack()}, [] {});
  std::byte row{};
  const nccl::Communicator::Transfer transfer{RankId(1), &row, 1};
  EXPECT_THROW(communicator.exchange({&transfer, 1}, {&transfer, 1}, nullptr), Error);
  EXPECT_EQ(num_open_nccl_groups(), 0);
}

TEST(ClusterFaultOnHost, ADroppedTicketWaits) {
  const auto run = [](World& world) {
    OnHost rank(world);
    std::vector<float> rows(2 * kHidden);
    {
      const auto dropped = rank.engine->dispatch(
          rank.plan, rank.x(), {.out = {reinterpret_cast<std::byte*>(rows.data()), f32, 2, kHidden, nullptr}});
    }
    EXPECT_TRUE(rank.lane->is_idle());
    EXPECT_EQ(rows, std::vector<float>(2 * kHidden, static_cast<float>(1 + world.rank().value)));
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
}

TEST(ClusterFaultOnHost, ACallThatFailsBeforeItIsCountedCanBeRepeated) {
  const auto run = [](World& world) {
    OnHost rank(world);
    HostStream stream(HostStream::Pace::prompt);
    if (world.rank().value == 0) {
      stream.put([is_broken = true]() mutable {
        if (std::exchange(is_broken, false)) throw Error(ErrorCode::system, "on purpose");
      });
      EXPECT_THROW((void)rank.engine->dispatch(rank.plan, rank.x(), {.stream = stream.handle()}), Error);
    }
    EXPECT_NO_THROW((void)rank.engine->dispatch(rank.plan, rank.x(), {.stream = stream.handle()}).wait());
    world.barrier();
  };
  EXPECT_NO_THROW(World::spawn(2, run, two_islands()));
}

}  // namespace
}  // namespace shunt::test
