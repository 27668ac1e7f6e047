// Compares the copies that a device chooses with the reference.
#include "plan/cuda/choose.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "bench/reference/copies.hpp"
#include "support/cuda/device.hpp"
#include "support/dice.hpp"
#include "support/random_case.hpp"

namespace shunt::test {
namespace {

using Ids = std::vector<std::int32_t>;

/// Adds repeated and invalid experts to choices of any token.
void add_nonsense(Dice& dice, std::int32_t topk, std::int32_t num_experts, Ids& experts) {
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const std::size_t token = i - i % static_cast<std::size_t>(topk);
    if (dice.one_in(8)) experts[i] = experts[token + static_cast<std::size_t>(dice.between(0, topk - 1))];
    if (dice.one_in(16))
      experts[i] = dice.pick(
          {-2, num_experts, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()});
  }
}

class DeviceChoose : public ::testing::Test {
 protected:
  void SetUp() override { SHUNT_NEEDS_DEVICE(); }

  /// Compares the routings of each of these ranks.
  void expect_reference(const RandomCase& all, const std::vector<std::int32_t>& sources) {
    arena().reset();
    const device::MapWords words(all.map, all.topology, false);
    const device::MapTables map = words.at(arena().put(words.words()));
    for (const std::int32_t source : sources) {
      const Ids& experts = all.ranks[static_cast<std::size_t>(source)].experts;
      ASSERT_EQ(choose(all, map, source, experts), reference(all, source, experts))
          << "source " << source << " of " << all.map.num_ranks() << ", top-" << all.topk << ", " << experts.size()
          << " choices of " << all.map.num_experts() << " experts in " << all.map.num_physical() << " copies";
    }
  }

 private:
  static constexpr std::size_t kBeyond = 64;  // entries after the last token's, which must not change
  static constexpr std::int32_t kPoison = 0x5a5a5a5a;

  static Ids choose(const RandomCase& all, const device::MapTables& map, std::int32_t source, const Ids& experts) {
    const std::size_t size = experts.size() + kBeyond;
    std::byte* const place = arena().take(size * sizeof(std::int32_t));
    poison(place, size * sizeof(std::int32_t), nullptr, 0x5a);
    auto* const copies = reinterpret_cast<std::int32_t*>(place);
    device::launch_choose({.experts = arena().put(experts),
                           .copies = nullptr,
                           .weights = nullptr,
                           .num_tokens = static_cast<std::int64_t>(experts.size()) / all.topk,
                           .topk = all.topk,
                           .self = source},
                          map, copies, nullptr);
    return download_as(copies, size, nullptr);
  }

  static Ids reference(const RandomCase& all, std::int32_t source, const Ids& experts) {
    const auto topk = static_cast<std::size_t>(all.topk);
    Ids expected;
    for (std::size_t first = 0; first < experts.size(); first += topk) {
      Ids named;
      for (std::size_t i = first; i < first + topk; ++i) {
        const bool is_new = std::ranges::find(named, experts[i]) == named.end();
        named.push_back(is_new && experts[i] >= 0 && experts[i] < all.map.num_experts() ? experts[i] : -1);
      }
      for (const PhysicalId copy : reference_copies(all.map, all.topology, RankId(source), named))
        expected.push_back(copy.value);
    }
    expected.insert(expected.end(), kBeyond, kPoison);
    return expected;
  }

  static Arena& arena() {
    static Arena arena(64 << 20);
    return arena;
  }
};

TEST_F(DeviceChoose, FollowsTheReferenceForAnyTopKAndRanks) {
  std::mt19937_64 generator(1);
  Dice dice(generator);
  for (std::int32_t topk = 1; topk <= Routing::kMaxTopK; ++topk)
    for (const std::int32_t ranks : {3, 16, 64, 65, 90}) {
      const Topology topology = Topology::virtual_nodes(ranks, dice.between(1, std::min(ranks, 9)));
      RandomCase all =
          random_case(generator, topology, {.experts = 150, .topk = topk, .tokens = 70, .least_topk = topk});
      for (RankRouting& rank : all.ranks) add_nonsense(dice, topk, all.map.num_experts(), rank.experts);
      ASSERT_NO_FATAL_FAILURE(expect_reference(all, {0, ranks / 2, ranks - 1}));
    }
}

TEST_F(DeviceChoose, HandlesLargeBatches) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    std::mt19937_64 generator(seed);
    const RandomCase all = random_case(generator, Topology::virtual_nodes(4, 2),
                                       {.experts = 256, .topk = 8, .tokens = 5000, .least_topk = 8});
    ASSERT_NO_FATAL_FAILURE(expect_reference(all, {0, 1, 2, 3}));
  }
}

TEST_F(DeviceChoose, CanBeLoadedAhead) { device::preload_choose(); }

}  // namespace
}  // namespace shunt::test
