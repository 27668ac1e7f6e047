// Pruning on a device against pruning on the host: bit for bit.
#include "plan/cuda/prune.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plan/prune.hpp"
#include "support/cuda/device.hpp"
#include "support/prune_case.hpp"

namespace shunt::test {
namespace {

class DevicePrune : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS_DEVICE(); }

  /// With the report of what the device says about its tokens, if asked for.
  PrunedRouting prune(const PruneCase& made, bool wants_report = true) {
    arena().reset();
    const Routing routing = made.routing();
    const auto on_device = [&](std::span<const float> values) {
      return values.empty() ? nullptr : arena().put(std::vector<float>(values.begin(), values.end()));
    };
    const PlaceWords places(made.map, made.topology, made.level);
    const CopyArrays copies(made.map, made.topology);
    const CopyTables tables{made.map.num_experts(), arena().put(copies.experts), arena().put(copies.copies_begin),
                            arena().put(copies.copies)};
    auto* const experts = take<std::int32_t>(routing.experts.size());
    auto* const weights = take<float>(routing.experts.size());
    auto* const tokens = wants_report ? take<PrunedToken>(routing.num_tokens()) : nullptr;
    device::launch(device::Prune{.arrays = {.experts = arena().put(made.chosen.experts),
                                            .weights = on_device(made.chosen.weights),
                                            .scores = on_device(made.scores),
                                            .similarity = on_device(made.similarity ? made.similarity->values()
                                                                                    : std::span<const float>{}),
                                            .places = places.at(arena().put(places.words())),
                                            .copies = made.source.valid() && made.map.has_replicas()
                                                          ? copies_from(made.options(), tables, made.topology)
                                                          : CopiesFromSource{},
                                            .topk = made.topk,
                                            .limit = made.limit,
                                            .keeps_sum = made.renormalise == Renormalise::keep_sum,
                                            .pruned_experts = experts,
                                            .pruned_weights = weights},
                                 .num_tokens = static_cast<std::int64_t>(routing.num_tokens()),
                                 .tokens = tokens},
                   nullptr);
    return {.experts = download_as(experts, routing.experts.size(), nullptr),
            .weights = download_as(weights, routing.experts.size(), nullptr),
            .topk = made.topk,
            .report = report_on(download_as(tokens, wants_report ? routing.num_tokens() : 0, nullptr))};
  }

  void expect_as_on_the_host(std::uint64_t seed, const CaseLimits& limits = {}) {
    const PruneCase made = random_prune_case(seed, limits);
    const PrunedRouting expected = made.prune();
    const PrunedRouting actual = prune(made);
    ASSERT_EQ(actual.experts, expected.experts) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(std::memcmp(actual.weights.data(), expected.weights.data(), expected.weights.size() * sizeof(float)), 0)
        << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(actual.report.mass_kept, expected.report.mass_kept) << "seed " << seed << ": " << made.describe();
    ASSERT_EQ(actual.report.share_changed, expected.report.share_changed) << "seed " << seed;
    ASSERT_EQ(actual.report.c_t_before, expected.report.c_t_before) << "seed " << seed;
    ASSERT_EQ(actual.report.c_t_after, expected.report.c_t_after) << "seed " << seed;
    ASSERT_EQ(actual.report.num_dropped, expected.report.num_dropped) << "seed " << seed;
  }

 private:
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

TEST_F(DevicePrune, MakesNoReportUnlessAsked) {
  device::preload_prune();
  const PruneCase made = random_prune_case(1);
  EXPECT_EQ(prune(made, false).experts, made.prune().experts);
}

}  // namespace
}  // namespace shunt::test
