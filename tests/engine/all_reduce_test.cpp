// All ranks have the same sums, bit for bit, added up in the order of the topology.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "shunt/error.hpp"
#include "shunt/world.hpp"
#include "support/hosts_of_processes.hpp"
#include "support/require.hpp"

namespace shunt::test {
namespace {

using Values = std::vector<float>;

/// Of very different sizes, so that another order of additions gives other bits.
Values values_of(RankId rank, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed * 1000 + static_cast<std::uint32_t>(rank.value));
  std::uniform_real_distribution<float> mantissa(-1, 1);
  Values values(count);
  for (float& value : values) value = std::ldexp(mantissa(random), static_cast<int>(random() % 24));
  return values;
}

Values expected_sum(const Topology& topology, std::size_t count, std::uint32_t seed) {
  const auto add = [](const Values& a, const Values& b) {
    Values sum(a);
    for (std::size_t i = 0; i < a.size(); ++i) sum[i] += b[i];
    return sum;
  };
  Values total;
  for (std::int32_t n = 0; n < topology.num_nodes(); ++n) {
    Values of_node;
    for (const RankId rank : topology.ranks(NodeId(n)))
      of_node = of_node.empty() ? values_of(rank, count, seed) : add(of_node, values_of(rank, count, seed));
    total = total.empty() ? of_node : add(total, of_node);
  }
  return total;
}

Tensor tensor_on(float* data, std::size_t count) {
  return {reinterpret_cast<std::byte*>(data), f32, 1, static_cast<std::int64_t>(count)};
}

void reduce_and_check(World& world, std::size_t count, std::uint32_t seed, bool in_pool) {
  Values values = values_of(world.rank(), count, seed);
  const Tensor tensor =
      in_pool ? world.allocate(f32, 1, static_cast<std::int64_t>(count)) : tensor_on(values.data(), count);
  if (in_pool && count > 0) std::memcpy(tensor.data, values.data(), count * sizeof(float));
  world.all_reduce(tensor).wait();
  const Values expected = expected_sum(world.topology(), count, seed);
  require(count == 0 || std::memcmp(tensor.data, expected.data(), count * sizeof(float)) == 0, "sums are as expected");
}

void reduce_all_sizes(World& world) {
  std::uint32_t seed = 0;
  for (const std::size_t count : {0u, 1u, 15u, 17u, 1000u, 8192u * 5, 300'001u})
    for (const bool in_pool : {true, false}) reduce_and_check(world, count, ++seed, in_pool);
}

class AllReduce : public ::testing::TestWithParam<std::int32_t> {};

TEST_P(AllReduce, AddsUpWithinAMachine) {
  World::spawn(GetParam(), reduce_all_sizes);
  World::spawn(GetParam(), reduce_all_sizes, {.kind = WorldKind::shm});
}

TEST_P(AllReduce, AddsUpBetweenMachines) {
  for (const std::int32_t nodes : {2, 3, 7})
    if (nodes <= GetParam())
      World::spawn(GetParam(), reduce_all_sizes,
                   {.kind = WorldKind::islands, .topology = Topology::virtual_nodes(GetParam(), nodes)});
}

TEST_P(AllReduce, GivesTheBitsOfTheTopologyOnEveryTransport) {
  if (GetParam() == 1) GTEST_SKIP() << "one rank has one node";
  World::spawn(GetParam(), reduce_all_sizes, {.topology = Topology::virtual_nodes(GetParam(), 2)});
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllReduce, ::testing::Values(1, 2, 4, 7));

TEST(AllReduceOnHosts, AddsUpOverTcp) {
  if (const std::string why = why_no_hosts(); !why.empty()) GTEST_SKIP() << why;
  run_on_hosts(2, 2, reduce_all_sizes, std::chrono::seconds(60));
}

TEST(AllReduceTickets, ManyMayBeOutstanding) {
  World::spawn(4, [](World& world) {
    constexpr std::size_t kCount = 5000;
    std::vector<Tensor> tensors;
    std::vector<Ticket<Tensor>> tickets;
    for (std::uint32_t i = 0; i < 50; ++i) {
      tensors.push_back(world.allocate(f32, 1, kCount));
      std::memcpy(tensors.back().data, values_of(world.rank(), kCount, i).data(), kCount * sizeof(float));
      tickets.push_back(world.all_reduce(tensors.back()));
    }
    for (std::uint32_t i = 50; i-- > 0;) {
      const Tensor sum = tickets[i].wait();
      const Values expected = expected_sum(world.topology(), kCount, i);
      require(std::memcmp(sum.data, expected.data(), kCount * sizeof(float)) == 0, "sums are as expected");
    }
  });
}

TEST(AllReduceErrors, NameBothRanksIfSizesDiffer) {
  World::spawn(2, [](World& world) {
    Values values(static_cast<std::size_t>(10 + world.rank().value));
    try {
      world.all_reduce(tensor_on(values.data(), values.size())).wait();
      ADD_FAILURE() << "no Error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("all_reduce #0 with tensors of different sizes"));
    }
  });
}

TEST(AllReduceErrors, RefuseWhatIsNoContiguousF32) {
  World::spawn(1, [](World& world) {
    Values values(12);
    Tensor halves = tensor_on(values.data(), 12), strided = tensor_on(values.data(), 3);
    halves.dtype = bf16;
    strided.rows = 2;
    strided.row_stride = 6;
    for (const Tensor& bad : {halves, strided, Tensor{nullptr, f32, 1, 4}})
      EXPECT_THROW((void)world.all_reduce(bad), Error);
    reduce_and_check(world, 12, 1, false);
  });
}

}  // namespace
}  // namespace shunt::test
