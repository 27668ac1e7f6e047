// What ranks and engines share: a heap.
#include <gtest/gtest.h>

#include <optional>

#include "core/cuda/stream.hpp"
#include "engine/cuda/small_shuffle.hpp"
#include "support/require.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

TEST(DeviceHeap, OfDifferentSizesIsRefusedByAllRanks) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(3, [](World& world) {
    for (int i = 0; i < 20; ++i) {
      const std::size_t bytes = world.rank().value == 2 ? 2 << 20 : 1 << 20;
      require_error([&] { const DeviceHeap heap(world, {.bytes = bytes}); }, ErrorCode::mismatch, "heap has");
    }
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    SmallShuffle(world, heap, std::chrono::seconds(20)).round_trip();
    world.barrier();
  }));
}

/// Shuffles one after the other, none of which anybody waits for, on a stream of their own and with rows outside of the
/// heap.
class Endless {
 public:
  static constexpr std::int64_t kTokens = 64;
  static constexpr std::int64_t kHidden = 256;

  Endless(World& world, const DeviceHeap& heap, Arena& arena, float first_value)
      : map_(ExpertMap::contiguous(2 * world.size(), world.size())),
        max_rows_(kTokens * world.size()),
        arena_(arena),
        stream_(device::make_stream()),
        engine_(world, heap,
                {.hidden = kHidden,
                 .dtype = f32,
                 .max_tokens = kTokens,
                 .stream = stream_.get(),
                 .deadline = std::chrono::seconds(20)}),
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
    experts_ = reinterpret_cast<const std::int32_t*>(place);
  }

  void shuffle() {
    const DevicePlan plan = engine_.plan({.experts = experts_, .num_tokens = kTokens}, map_, {.max_rows = max_rows_});
    const Tensor rows = tensor(max_rows_);
    (void)engine_.dispatch(plan, x_, {.out = rows});
    results_.push_back(tensor(kTokens));
    last_.emplace(engine_.combine(plan, rows, {.out = results_.back()}));
  }

  void check() {
    (void)last_->wait();
    for (const Tensor& result : results_) {
      const auto values = download_as(reinterpret_cast<const float*>(result.data), kTokens * kHidden, engine_.stream());
      for (std::size_t i = 0; i < values.size(); ++i)
        require(values[i] == expected_[i / kHidden], "tokens come back as they were");
    }
  }

 private:
  Tensor tensor(std::int64_t rows) {
    Tensor made{nullptr, f32, rows, kHidden, nullptr};
    made.data = arena_.take(made.bytes());
    return made;
  }

  ExpertMap map_;
  std::int64_t max_rows_;
  Arena& arena_;
  std::shared_ptr<CUstream_st> stream_;
  DeviceEngine engine_;
  Tensor x_;
  const std::int32_t* experts_ = nullptr;
  std::vector<float> expected_;
  std::vector<Tensor> results_;
  std::optional<DeviceTicket<Tensor>> last_;
};

TEST(DeviceHeap, HasNoMemoryThatTwoEnginesUseAtATime) {
  SHUNT_NEEDS_DEVICE();
  constexpr int kRounds = 100;
  ASSERT_NO_THROW(World::spawn(2, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 4 << 20});
    Arena arena(std::size_t{128} << 20);
    world.barrier();
    Endless first(world, heap, arena, 1.0f);
    Endless second(world, heap, arena, 1001.0f);
    for (int round = 0; round < kRounds; ++round) {
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
