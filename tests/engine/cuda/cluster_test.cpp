// Devices of several nodes: processes that reach each other over a network, or by NCCL; and what goes wrong there.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <optional>
#include <thread>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/check.hpp"
#include "core/cuda/memory.hpp"
#include "core/cuda/stream.hpp"
#include "engine/rank_of_case.hpp"
#include "engine/small_shuffle.hpp"
#include "support/child_process.hpp"
#include "support/hosts_of_processes.hpp"
#include "support/require_error.hpp"
#include "transport/nccl/communicator.hpp"

namespace shunt::test {
namespace {

using std::chrono::milliseconds;

std::vector<ShuffleCase> cases_on(const Topology& topology) {
  return draw_cases(
      10, topology, [](auto) { return std::nullopt; }, {},
      [](const ShuffleCase& drawn) { return can_run(EngineKind::cluster, drawn); });
}

// Alone in its process, as ctest runs it: after another test of this program CUDA is not to be had in forked ranks.
class DeviceHosts : public ::testing::TestWithParam<std::string> {};

TEST_P(DeviceHosts, GiveTheSameBits) {
  SHUNT_NEEDS(kDeviceProcesses);
  if (const std::string why = why_no_hosts(GetParam()); !why.empty()) GTEST_SKIP() << why;
  const auto cases = cases_on(Topology::virtual_nodes(4, 2));
  const auto run = [&](World& world) {
    for (const ShuffleCase& each : cases) run_case(world, kDeviceProcesses, each);
    world.barrier();
  };
  ASSERT_NO_THROW(run_on_hosts(2, 2, run, std::chrono::seconds(25), GetParam()));
}
INSTANTIATE_TEST_SUITE_P(Over, DeviceHosts, ::testing::Values("tcp", "ucx"),
                         [](const auto& parameter) { return parameter.param; });

/// Throws what ends the engine.
void wait_for_failure(const Engine& engine) {
  for (;; std::this_thread::sleep_for(milliseconds(1))) engine.check();
}

constexpr Place kNcclProcesses{"NcclProcesses", WorldKind::shm, true, DeviceNetwork::nccl};

/// Ranks that share a GPU and pretend not to: NCCL then takes the way between hosts.
void pretend_to_be_apart(const World& world) {
  setenv("NCCL_HOSTID", std::to_string(world.rank().value).c_str(), 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
}

/// Empty if ranks of two processes can use NCCL here, else why not.
std::string why_no_nccl() {
  if (std::string why = kDeviceProcesses.why_not(); !why.empty()) return why;
  if (std::string why = why_no_hosts(); !why.empty()) return why;
  ChildProcess child([] { (void)nccl::Library::load(); });
  const auto end = child.wait();
  return end && end->returned ? "" : end ? end->error : "NCCL can't be loaded";
}

// Alone in its process, as ctest runs it.
TEST(DeviceNccl, GivesTheSameBitsBetweenProcesses) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  DeviceOptions several_rounds = small_device();
  several_rounds.num_batches = 1;
  const auto cases = cases_on(Topology::virtual_nodes(2, 2));
  const auto run = [&](World& world) {
    pretend_to_be_apart(world);
    for (const ShuffleCase& each : cases) run_case(world, kNcclProcesses, each, {}, several_rounds);
    world.barrier();
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(60)));
}

// Alone in its process, as ctest runs it.
TEST(DeviceNccl, LeavesTheDeviceUsableWhenARankNeverComes) {
  if (const std::string why = why_no_nccl(); !why.empty()) GTEST_SKIP() << why;
  const auto run = [](World& world) {
    pretend_to_be_apart(world);
    std::optional<SmallShuffle> shuffle(std::in_place, world, kNcclProcesses, std::chrono::seconds(1));
    shuffle->plan();
    (void)shuffle->dispatch().wait();
    if (world.rank().value == 1)
      return require_error([&] { wait_for_failure(shuffle->engine()); }, ErrorCode::deadline, "rank 1");
    require_error([&] { (void)shuffle->dispatch().wait(); }, ErrorCode::deadline, "rank 1");
    device::check(cudaDeviceSynchronize(), "use the device after a fault");
    shuffle.reset();
    device::check(cudaDeviceSynchronize(), "use the device without the engine");
  };
  ASSERT_NO_THROW(run_on_hosts(2, 1, run, std::chrono::seconds(40)));
}

/// Two ranks, each alone on its node.
class Cluster : public AtPlace {
 protected:
  void on_ranks(const std::function<void(World&, SmallShuffle&)>& body) const {
    ASSERT_NO_THROW(place().run(2, [&](World& world) {
      SmallShuffle shuffle(world, place());
      shuffle.plan();
      body(world, shuffle);
    }));
  }
};
INSTANTIATE_TEST_SUITE_P(At, Cluster, ::testing::Values(kDeviceIslands, kDeviceNccl), kNameOfPlace);

/// Work of a stream that ends some time after the engine has failed.
struct UntilItFails {
  const Engine& engine;
  std::atomic<bool> is_over{false};

  void put_on(Stream stream) {
    const auto run = [](void* self) { static_cast<UntilItFails*>(self)->wait(); };
    device::check(cudaLaunchHostFunc(stream, run, this), "hold up a stream");
  }
  void wait() {
    try {
      wait_for_failure(engine);
    } catch (const Error&) {
      std::this_thread::sleep_for(milliseconds(50));
    }
    is_over = true;
  }
};

TEST_P(Cluster, AnErrorIsThrownWhenTheDeviceUsesNoneOfTheCallersMemoryAnyMore) {
  std::latch is_over(1);
  on_ranks([&](World& world, SmallShuffle& shuffle) {
    if (world.rank().value == 1) {
      EXPECT_THROW((void)shuffle.combine().wait(), Error);
      return is_over.wait();  // a node's last rank frees device memory, which waits for rank 0's stream
    }
    Engine& engine = shuffle.engine();
    UntilItFails earlier{engine};
    earlier.put_on(engine.stream());
    const auto callers = device::make_stream();
    Tensor rows = engine.expert_out(shuffle.current_plan());
    const std::byte* const place_of_rows = rows.data;
    auto ticket = engine.dispatch(shuffle.current_plan(), shuffle.x(), {.out = rows, .stream = callers.get()});
    EXPECT_THROW((void)ticket.wait(), Error);
    EXPECT_TRUE(earlier.is_over);
    rows = {};
    for (const Tensor& taken : take_all_memory(engine))
      EXPECT_FALSE(taken.data <= place_of_rows && place_of_rows < taken.data + taken.bytes())
          << "devices of other ranks may still write there";
    is_over.count_down();
  });
}

TEST_P(Cluster, ACallThatFailsCanBeRepeated) {
  on_ranks([](World& world, SmallShuffle& shuffle) {
    if (world.rank().value == 0) {
      const std::vector<Tensor> all = take_all_memory(shuffle.engine());
      require_error([&] { (void)shuffle.dispatch(); }, ErrorCode::system, "");
      require_error([&] { (void)shuffle.combine(); }, ErrorCode::system, "");
    }
    shuffle.round_trip();
    world.barrier();
  });
}

TEST_P(Cluster, RefusesACaptureAndLeavesItIntact) {
  on_ranks([](World& world, SmallShuffle& shuffle) {
    const auto stream = device::make_stream();
    const Engine& engine = shuffle.engine();
    ConstTensor with_gaps = shuffle.x();
    with_gaps.cols /= 2;
    with_gaps.row_stride = shuffle.x().cols;
    const auto graph = device::capture(stream.get(), [&] {
      require_error([&] { shuffle.plan({.stream = stream.get()}); }, ErrorCode::invalid_argument, "captured");
      require_error([&] { (void)shuffle.dispatch(stream.get()); }, ErrorCode::invalid_argument, "captured");
    });
    EXPECT_NE(graph, nullptr);
    const Tensor copied = engine.allocate(with_gaps.dtype, with_gaps.rows, with_gaps.cols);
    engine.copy(with_gaps, copied);
    shuffle.round_trip();
    world.barrier();
  });
}

TEST(DeviceMemory, ForTheHeapsOfSomeRanksOnlyIsAnErrorOnAllAndTheCallCanBeRepeated) {
  SHUNT_NEEDS(kDeviceThreads);
  constexpr std::size_t kHeapBytes = std::size_t{256} << 20;
  std::latch is_full(2), has_failed(2), is_free(2);
  const auto run = [&](World& world) {
    std::shared_ptr<std::byte> taken;
    if (world.rank().value == 0) {  // leaves room for one heap, not for two
      std::size_t free = 0, total = 0;
      device::check(cudaMemGetInfo(&free, &total), "ask for free memory");
      taken = device::allocate(free - kHeapBytes * 3 / 2);
    }
    is_full.arrive_and_wait();
    const EngineOptions options = kDeviceThreads.options({.hidden = 8}, small_device(64, kHeapBytes));
    require_error([&] { const Engine engine(world, options); }, ErrorCode::system, "");
    has_failed.arrive_and_wait();
    taken.reset();
    is_free.arrive_and_wait();
    SmallShuffle(world, kDeviceThreads).round_trip();
    world.barrier();
  };
  ASSERT_NO_THROW(kDeviceThreads.run(2, run));
}

class DeviceNcclOfThreads : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS(kDeviceNccl); }

  /// `trouble` as in support/cuda_on_cpu/nccl.cpp. Every rank's dispatch throws an Error of this code, or of any. It
  /// does so when the device is done, which it never is unless NCCL is aborted.
  static void expect_errors(const char* trouble, std::optional<ErrorCode> code = {}) {
    setenv("NCCL_ON_CPU_TROUBLE", trouble, 1);
    ASSERT_NO_THROW(kDeviceNccl.run(2, [&](World& world) {
      SmallShuffle shuffle(world, kDeviceNccl);
      shuffle.plan();
      try {
        (void)shuffle.dispatch().wait();
        ADD_FAILURE() << "no Error was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code.value_or(error.code())) << error.what();
      }
    }));
    unsetenv("NCCL_ON_CPU_TROUBLE");
  }
  static DeviceOptions device_with(std::size_t batch_bytes) {
    DeviceOptions device = small_device(64, SmallShuffle::kHeapBytes);
    device.batch_bytes = batch_bytes;
    return device;
  }
};

TEST_F(DeviceNcclOfThreads, OneThatWaitsForARankIsAbortedBeforeTheErrorIsThrown) { expect_errors("group:1"); }

TEST_F(DeviceNcclOfThreads, WhatItReportsAfterTheLastRoundIsAnError) { expect_errors("lost:1", ErrorCode::system); }

TEST_F(DeviceNcclOfThreads, IsNotStartedBeforeAllPeersAreHere) {
  ASSERT_NO_THROW(kDeviceNccl.run(2, [](World& world) {
    SmallShuffle shuffle(world, kDeviceNccl);
    shuffle.plan();
    Engine& engine = shuffle.engine();
    poison(engine, shuffle.rows());
    if (world.rank().value == 1) world.barrier();
    auto ticket = shuffle.dispatch();
    if (world.rank().value == 0) {
      // Near rows come after what NCCL is given. Were it to wait for rank 1, so would these copies.
      while (all_are(bytes_of(engine, shuffle.rows()), std::byte{0xa5})) std::this_thread::yield();
      world.barrier();
    }
    (void)ticket.wait();
  }));
}

TEST_F(DeviceNcclOfThreads, AllRanksThrowWhatOneOfThemLacks) {
  ASSERT_NO_THROW(kDeviceNccl.run(2, [](World& world) {
    const Engine lender(world, kDeviceIslands.options({.hidden = 1}, device_with(1 << 10)));
    const Tensor taken = lender.allocate(fp8_e4m3, 1, world.rank().value == 1 ? 13 << 20 : 1);
    require_error([&] { const Engine engine(world, kDeviceNccl.options({.hidden = 1}, device_with(1 << 20))); },
                  ErrorCode::system, "rank 1 can't join by NCCL: ");
    world.barrier();
  }));
}

TEST_F(DeviceNcclOfThreads, BatchesOfOtherSizesAreAMismatch) {
  ASSERT_NO_THROW(kDeviceNccl.run(2, [](World& world) {
    const std::size_t bytes = std::size_t{16384} << world.rank().value;
    require_error([&] { const Engine engine(world, kDeviceNccl.options({.hidden = 1}, device_with(bytes))); },
                  ErrorCode::mismatch, "through NCCL");
    world.barrier();
  }));
}

// Else the thread's later groups would never end.
TEST_F(DeviceNcclOfThreads, LeavesNoGroupOpenWhenASendIsRefused) {
  const nccl::Library& library = nccl::Library::load();
  const auto stream = device::make_stream();
  std::byte sent{7}, received{};
  const auto exchange = [&] {
    nccl::Communicator::Place place{RankId(0), 1, {}};
    ASSERT_EQ(library.GetUniqueId(&place.id), nccl::kSuccess);
    nccl::Communicator communicator(library, place, [] {});
    const nccl::Communicator::Transfer send{RankId(0), &sent, 1}, receive{RankId(0), &received, 1};
    communicator.exchange({&send, 1}, {&receive, 1}, stream.get());
    device::check(cudaStreamSynchronize(stream.get()), "wait for a transfer");
  };
  setenv("NCCL_ON_CPU_TROUBLE", "send:0", 1);
  EXPECT_THROW(exchange(), Error);
  unsetenv("NCCL_ON_CPU_TROUBLE");
  exchange();
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace shunt::test
