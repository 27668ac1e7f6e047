// Callers' streams and device memory: what is late on them, and what engines share.
#include <gtest/gtest.h>

#include "core/cuda/stream.hpp"
#include "engine/rank_of_case.hpp"
#include "engine/small_shuffle.hpp"
#include "kernels/cuda/copy_bytes.hpp"
#include "support/cuda/device.hpp"
#include "support/cuda/stream_work.hpp"
#include "support/require.hpp"
#include "support/seeds.hpp"

namespace shunt::test {
namespace {

class DeviceStreams : public AtPlace {};
INSTANTIATE_TEST_SUITE_P(At, DeviceStreams, ::testing::Values(kDeviceThreads, kDeviceIslands, kDeviceNccl),
                         kNameOfPlace);

TEST_P(DeviceStreams, OperationsStartWhenWhatWasPutThereBeforeIsDone) {
  const Topology topology = place().topology(4);
  const std::vector<ShuffleCase> cases = draw_cases(24, topology);
  const auto run = [&](World& world) {
    Arena arena(32 << 20);
    preload_stream_work();
    device::preload_copy_bytes();
    const std::shared_ptr<CUstream_st> stream = device::make_stream();
    world.barrier();
    for (const ShuffleCase& each : cases) {
      arena.reset();
      const auto copy_late = [&](const ConstTensor& from, const Tensor& to) {
        std::byte* const kept = arena.take(from.bytes());
        upload(kept, {from.data, from.bytes()}, stream.get());
        delay(std::chrono::microseconds(200), 1, stream.get());
        device::launch(device::CopyBytes{.from = kept, .to = to.data, .row_bytes = from.bytes()}, stream.get());
      };
      run_case(world, place(), each, {.caller = {stream.get(), copy_late}});
    }
    world.barrier();
  };
  ASSERT_NO_THROW(World::spawn(4, run, place().spawn(topology)));
}

/// Shuffles one after the other, without a wait in between, on a stream of their own and with rows outside of the heap.
class Endless {
 public:
  Endless(World& world, Arena& arena, float value)
      : arena_(arena), shuffle_(world, kDeviceThreads, std::chrono::seconds(20), "", stream_.get()), value_(value) {
    fill(shuffle_.engine(), shuffle_.x(), value);
  }

  void shuffle() {
    shuffle_.plan({.max_rows = 16});
    const Plan& plan = shuffle_.current_plan();
    const Tensor rows = tensor(16);
    (void)shuffle_.engine().dispatch(plan, shuffle_.x(), {.out = rows});
    results_.push_back(tensor(SmallShuffle::kTokens));
    (void)shuffle_.engine().combine(plan, rows, {.out = results_.back()});
  }

  void check() {
    shuffle_.engine().check();
    for (const Tensor& result : results_)
      for (const float value : floats_of(shuffle_.engine(), result))
        require(value == value_, "tokens come back as they were");
  }

 private:
  Tensor tensor(std::int64_t rows) {
    Tensor made{nullptr, f32, rows, SmallShuffle::kHidden, nullptr, shuffle_.engine().memory()};
    made.data = arena_.take(made.bytes());
    return made;
  }

  Arena& arena_;
  std::shared_ptr<CUstream_st> stream_ = device::make_stream();
  SmallShuffle shuffle_;
  float value_;
  std::vector<Tensor> results_{};
};

TEST(DeviceHeap, HasNoMemoryThatTwoEnginesUseAtATime) {
  SHUNT_NEEDS(kDeviceThreads);
  const auto num_rounds = static_cast<int>(std::max<std::uint64_t>(share_of_cases(100), 1));
  ASSERT_NO_THROW(kDeviceThreads.run(2, [&](World& world) {
    Arena arena(std::size_t{8} << 20);
    world.barrier();
    Endless first(world, arena, 1.0f);
    Endless second(world, arena, 1001.0f);
    for (int round = 0; round < num_rounds; ++round) {
      first.shuffle();
      second.shuffle();
    }
    first.check();
    second.check();
    world.barrier();
  }));
}

}  // namespace
}  // namespace shunt::test
