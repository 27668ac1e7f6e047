// Callers' streams and device memory: what is late on them, and what engines share.
#include <gtest/gtest.h>

#include <optional>

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
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 0; seed < 24; ++seed) cases.push_back(random_shuffle_case(seed, topology));
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
  static constexpr std::int64_t kTokens = 64;
  static constexpr std::int64_t kHidden = 256;

  Endless(World& world, Arena& arena, float first_value)
      : map_(ExpertMap::contiguous(2 * world.size(), world.size())),
        max_rows_(kTokens * world.size()),
        arena_(arena),
        stream_(device::make_stream()),
        engine_(world, options(stream_.get())),
        x_(tensor(kTokens)) {
    std::vector<float> x;
    std::vector<std::int32_t> experts;
    for (std::int64_t token = 0; token < kTokens; ++token) {
      experts.push_back(static_cast<std::int32_t>(token % map_.num_experts()));
      expected_.push_back(first_value + static_cast<float>(token));
      x.insert(x.end(), kHidden, expected_.back());
    }
    upload(x_.data, std::as_bytes(std::span(x)), engine_.stream());
    std::byte* const place = arena_.take(experts.size() * sizeof(std::int32_t));
    upload(place, std::as_bytes(std::span(experts)), engine_.stream());
    experts_ = {reinterpret_cast<const std::int32_t*>(place), experts.size()};
  }

  void shuffle() {
    const Plan plan = engine_.plan({.experts = experts_, .memory = engine_.memory()}, map_, {.max_rows = max_rows_});
    const Tensor rows = tensor(max_rows_);
    (void)engine_.dispatch(plan, x_, {.out = rows});
    results_.push_back(tensor(kTokens));
    last_.emplace(engine_.combine(plan, rows, {.out = results_.back()}));
  }

  void check() {
    (void)last_->wait();
    for (const Tensor& result : results_) {
      const auto values = floats_of(engine_, result);
      for (std::size_t i = 0; i < values.size(); ++i)
        require(values[i] == expected_[i / kHidden], "tokens come back as they were");
    }
  }

 private:
  static EngineOptions options(Stream stream) {
    DeviceOptions device = small_device(kTokens);
    device.heap_bytes = std::size_t{4} << 20;
    device.stream = stream;
    return kDeviceThreads.options({.hidden = kHidden, .dtype = f32}, device);
  }
  Tensor tensor(std::int64_t rows) {
    Tensor made{nullptr, f32, rows, kHidden, nullptr, engine_.memory()};
    made.data = arena_.take(made.bytes());
    return made;
  }

  ExpertMap map_;
  std::int64_t max_rows_;
  Arena& arena_;
  std::shared_ptr<CUstream_st> stream_;
  Engine engine_;
  Tensor x_;
  std::span<const std::int32_t> experts_;
  std::vector<float> expected_;
  std::vector<Tensor> results_;
  std::optional<Ticket<Tensor>> last_;
};

TEST(DeviceHeap, HasNoMemoryThatTwoEnginesUseAtATime) {
  SHUNT_NEEDS(kDeviceThreads);
  const auto num_rounds = static_cast<int>(std::max<std::uint64_t>(share_of_cases(100), 1));
  ASSERT_NO_THROW(kDeviceThreads.run(2, [&](World& world) {
    Arena arena(std::size_t{128} << 20);
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
