// Pruning on a device against pruning on the host: bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <tuple>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/stream.hpp"
#include "shunt/pruning.hpp"
#include "support/cuda/device.hpp"
#include "support/prune_case.hpp"
#include "support/require_error.hpp"

namespace shunt::test {
namespace {

class DevicePrune : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS_DEVICE(); }

  /// What goes into pruning and what comes out of it, on the device.
  struct Arrays {
    Routing routing;
    const float* scores;
    std::int32_t* experts;
    float* weights;
  };
  Arrays upload(const PruneCase& made) {
    arena().reset();
    const auto on_device = [&](const auto& values) {
      return std::span(values.empty() ? nullptr : arena().put(values), values.size());
    };
    const std::size_t count = made.chosen.experts.size();
    return {.routing = {on_device(made.chosen.experts), on_device(made.chosen.weights), made.topk, kDevice},
            .scores = on_device(made.scores).data(),
            .experts = take<std::int32_t>(count),
            .weights = take<float>(count)};
  }
  static Pruner pruner(const PruneCase& made) {
    return {made.map, made.topology, made.options(), static_cast<std::int64_t>(made.routing().num_tokens()), kDevice};
  }
  PrunedRouting download(const PruneCase& made, const Arrays& arrays, const PruneReport& report) {
    const std::size_t count = made.routing().experts.size();
    return {.experts = download_as(arrays.experts, count, stream_.get()),
            .weights = download_as(arrays.weights, count, stream_.get()),
            .topk = made.topk,
            .report = report};
  }

  PrunedRouting prune(const PruneCase& made) {
    const Arrays arrays = upload(made);
    Pruner pruner = this->pruner(made);
    pruner.prune(arrays.routing, arrays.scores, arrays.experts, arrays.weights, stream_.get());
    return download(made, arrays, pruner.report(stream_.get()));
  }

  void expect_as_on_the_host(std::uint64_t seed, const CaseLimits& limits = {}) {
    const PruneCase made = random_prune_case(seed, limits);
    expect_same(prune(made), made, seed);
  }
  static void expect_same(const PrunedRouting& actual, const PruneCase& made, std::uint64_t seed) {
    const PrunedRouting expected = made.prune();
    ASSERT_EQ(actual.experts, expected.experts) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(std::memcmp(actual.weights.data(), expected.weights.data(), expected.weights.size() * sizeof(float)), 0)
        << "seed " << seed << ": " << made.describe();
    const auto figures = [](const PruneReport& report) {
      return std::tuple(report.mass_kept, report.share_changed, report.c_t_before, report.c_t_after,
                        report.num_dropped);
    };
    ASSERT_EQ(figures(actual.report), figures(expected.report)) << "seed " << seed << ": " << made.describe();
  }

  static constexpr Memory kDevice = Memory::on_device(0);

  template <class T>
  T* take(std::size_t count) {
    std::byte* const place = arena().take(count * sizeof(T));
    poison(place, count * sizeof(T), nullptr);
    return reinterpret_cast<T*>(place);
  }

  static Arena& arena() {
    static Arena arena(64 << 20);
    return arena;
  }

  std::shared_ptr<CUstream_st> stream_ = why_no_device().empty() ? device::make_stream() : nullptr;
};

TEST_F(DevicePrune, GivesTheBitsOfTheHost) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) expect_as_on_the_host(seed);
}

TEST_F(DevicePrune, HandlesManyTokensExpertsAndRanks) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    expect_as_on_the_host(seed,
                          {.ranks = 80, .nodes = 10, .experts = 1024, .topk = 64, .tokens = 300, .least_topk = 8});
}

TEST_F(DevicePrune, PassesTokensThatMakeNoSense) {
  const float nan = std::nanf("");
  PruneCase made{Topology::single_node(3), ExpertMap::contiguous(6, 3), 2, {{0, 6, -7, 2, 3, 3, 0, 2, 4, 2}, {}}};
  made.chosen.weights = {1, 2, 3, 4, 5, 6, nan, 8, 10, 9};
  const PrunedRouting pruned = prune(made);
  EXPECT_EQ(pruned.experts, (std::vector<std::int32_t>{0, 6, -7, 2, 3, 3, 0, 2, 4, -1}));
  EXPECT_EQ(pruned.weights[1], 2.0f);
  EXPECT_TRUE(std::isnan(pruned.weights[6]));
  EXPECT_EQ(pruned.report.c_t_before, 2) << "of the one token that makes sense";
}

TEST_F(DevicePrune, NeverChoosesAScoreThatIsNotFinite) {
  const float nan = std::nanf("");
  PruneCase made{Topology::single_node(2), ExpertMap::contiguous(6, 2), 2, {{0, 3}, {}}};
  made.scores = {0.5f, nan, 0.125f, 0.25f, HUGE_VALF, 0.0f};
  EXPECT_EQ(prune(made).experts, (std::vector<std::int32_t>{0, 2}));
}

TEST_F(DevicePrune, IsReplayedInAGraph) {
  const PruneCase made = random_prune_case(5, {.tokens = 64});
  PruneCase others = made;
  std::reverse(others.chosen.experts.begin(), others.chosen.experts.end());
  const Arrays arrays = upload(made);
  Pruner pruner = this->pruner(made);
  const device::CapturedGraph graph(stream_.get(), [&] {
    pruner.prune(arrays.routing, arrays.scores, arrays.experts, arrays.weights, stream_.get());
  });
  for (const PruneCase* each : {&made, static_cast<const PruneCase*>(&others)}) {
    test::upload(static_cast<std::byte*>(const_cast<void*>(arrays.routing.experts.data())),
                 std::as_bytes(std::span(each->chosen.experts)), stream_.get());
    graph.replay();
    expect_same(download(*each, arrays, pruner.report(stream_.get())), *each, 5);
  }
}

TEST_F(DevicePrune, RefusesWhatItCanNotDo) {
  const PruneCase made = random_prune_case(1);
  PruneOptions options = made.options();
  options.limit = 0;
  require_error([&] { Pruner(made.map, made.topology, options, 8, kDevice); }, ErrorCode::invalid_argument,
                "limit is 0");
  require_error([&] { Pruner(made.map, made.topology, made.options(), -1, kDevice); }, ErrorCode::invalid_argument,
                "max_tokens is -1");
  require_error([&] { Pruner(made.map, made.topology, made.options(), 8, Memory::host()); }, ErrorCode::unsupported,
                "a Pruner is for devices");
  Pruner pruner(made.map, made.topology, made.options(), 8, kDevice);
  auto* const experts = take<std::int32_t>(64);
  auto* const out = take<std::int32_t>(64);
  auto* const weights = take<float>(64);
  const auto refused = [&](const Routing& routing, std::int32_t* into, const char* why,
                           ErrorCode code = ErrorCode::invalid_argument) {
    require_error([&] { pruner.prune(routing, nullptr, into, weights, stream_.get()); }, code, why);
  };
  const std::span<std::int32_t> eight(experts, 8), none(static_cast<std::int32_t*>(nullptr), 8);
  const std::span<const std::int64_t> wide(static_cast<const std::int64_t*>(nullptr), 8);
  refused({std::span(experts, 18), {}, 2, kDevice}, out, "9 tokens, max_tokens is 8");
  refused({eight, {}, 0, kDevice}, out, "topk is 0");
  refused({eight, {}, 3, kDevice}, out, "not a multiple of topk 3");
  refused({wide, {}, 2, kDevice}, out, "experts are of 64 bits", ErrorCode::unsupported);
  refused({eight, {}, 2, Memory::host()}, out, "does not lie on device 0");
  refused({none, {}, 2, kDevice}, out, "names no experts");
  refused({eight, {}, 2, kDevice}, nullptr, "no memory");
  refused({eight, {}, 2, kDevice}, experts, "take the routing's place");
}

}  // namespace
}  // namespace shunt::test
