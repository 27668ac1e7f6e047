// Shuffles without a plan against the reference: bit for bit.
#include "shunt/device_decoder.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/cuda/device.hpp"
#include "support/dice.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {
namespace {

bool is_for_decoders(const ShuffleCase& all) {
  return all.options.dtype != fp8_e4m3 && all.routing.options.layout == Layout::padded &&
         all.options.reduction == Reduction::tree;
}

void require_same(const char* name, const std::string& difference) {
  if (!difference.empty()) throw std::runtime_error(fmt::format("{} {}", name, difference));
}

void run_case(World& world, const DeviceHeap& heap, const ShuffleCase& all) {
  const std::size_t rank = world.rank().index();
  DeviceDecoder decoder(world, heap, all.routing.map,
                        {.hidden = all.options.hidden,
                         .dtype = all.options.dtype,
                         .expert_dtype = all.options.expert_dtype,
                         .result_dtype = all.options.result_dtype,
                         .wire_dtype = all.options.wire_dtype,
                         .max_tokens = all.routing.options.max_tokens,
                         .deadline = std::chrono::seconds(20)});
  const Stream stream = decoder.stream();
  const RankRouting& routing = all.routing.ranks[rank];
  const auto put = [&](const ConstTensor& host) {
    const Tensor tensor = heap.allocate(host.dtype, host.rows, host.cols);
    upload(tensor.data, {host.data, host.bytes()}, stream);
    return tensor;
  };
  const auto words = [](const auto& values) {
    return borrow(static_cast<const void*>(values.data()), f32, std::ssize(values), 1);
  };
  const Tensor experts = put(words(routing.experts));
  const Tensor weights = put(words(routing.weights));
  const Tensor x = put(all.x[rank].tensor());
  for (int turn = 0; turn < 3; ++turn) {
    poison(decoder.rows().data, decoder.rows().bytes(), stream);
    world.barrier();  // poisoned before rows come
    const Tensor rows =
        decoder
            .dispatch({.experts = reinterpret_cast<const std::int32_t*>(experts.data),
                       .weights = routing.weights.empty() ? nullptr : reinterpret_cast<const float*>(weights.data),
                       .num_tokens = all.x[rank].rows(),
                       .topk = all.routing.topk},
                      x)
            .wait();
    const ReferenceRows& expected = all.expected.dispatch[rank];
    require_same("dispatch", device_difference(rows, expected.rows, stream, expected.defined));
    if (download_as(decoder.source_counts(), expected.source_counts.size(), stream) != expected.source_counts)
      throw std::runtime_error("counts differ");
    const ConstTensor expert_out = all.expert_out[rank].tensor();
    upload(decoder.expert_out().data, {expert_out.data, expert_out.bytes()}, stream);
    require_same("combine", device_difference(decoder.combine().wait(), all.expected.combine[rank], stream));
  }
}

TEST(DeviceDecoder, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS_DEVICE();
  for (const Topology& topology :
       {Topology::single_node(1), Topology::single_node(2), Topology::virtual_nodes(5, 2), Topology::single_node(8)}) {
    std::vector<ShuffleCase> cases;
    for (std::uint64_t seed = 0; cases.size() < 30; ++seed)
      if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_decoders(drawn))
        cases.push_back(std::move(drawn));
    ASSERT_NO_THROW(World::spawn(topology.num_ranks(),
                                 [&](World& world) {
                                   const DeviceHeap heap(world, {.bytes = 256 << 20});
                                   for (const ShuffleCase& each : cases) {
                                     try {
                                       run_case(world, heap, each);
                                     } catch (const std::exception& error) {
                                       throw std::runtime_error(fmt::format("rank {}: {} (SHUNT_TEST_SEED={}: {})",
                                                                            world.rank().value, error.what(), each.seed,
                                                                            each.describe()));
                                     }
                                   }
                                   world.barrier();
                                 },
                                 {.topology = topology}));
  }
}

TEST(DeviceDecoder, RefusesTwoDispatchesInARow) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DeviceDecoder decoder(world, heap, ExpertMap::contiguous(2, 1), {.hidden = 8, .dtype = f32, .max_tokens = 4});
    const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, 8);
    EXPECT_THROW((void)decoder.combine(), Error);
    (void)decoder.dispatch({.topk = 1}, nothing);
    EXPECT_THROW((void)decoder.dispatch({.topk = 1}, nothing), Error);
    (void)decoder.combine().wait();
  }));
}

}  // namespace
}  // namespace shunt::test
