// Shuffles without a plan against the reference: bit for bit.
#include "shunt/device_decoder.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/cuda/captured_graph.hpp"
#include "core/cuda/check.hpp"
#include "engine/cuda/decode_case.hpp"
#include "support/cuda/device.hpp"
#include "support/cuda/launches.hpp"
#include "support/require_error.hpp"
#include "support/shuffle_case.hpp"

namespace shunt::test {
namespace {

bool is_for_decoders(const ShuffleCase& all) {
  const auto quantises_or_has_no_scales = [&](const HostRows& x) { return x.dtype() != fp8_e4m3; };
  return all.routing.options.layout == Layout::padded && all.options.reduction == Reduction::tree &&
         std::ranges::all_of(all.x, quantises_or_has_no_scales);
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
    if (all.options.dtype == fp8_e4m3)
      require_same("scales", device_difference(decoder.row_scales(), expected.scales, stream, expected.defined));
    if (download_as(decoder.source_counts(), expected.source_counts.size(), stream) != expected.source_counts)
      throw std::runtime_error("counts differ");
    const ConstTensor expert_out = all.expert_out[rank].tensor();
    upload(decoder.expert_out().data, {expert_out.data, expert_out.bytes()}, stream);
    require_same("combine", device_difference(decoder.combine().wait(), all.expected.combine[rank], stream));
  }
  world.barrier();  // nobody reads this rank's expert_out any more
}

void run_cases(const Topology& topology, const std::vector<ShuffleCase>& cases) {
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

TEST(DeviceDecoder, EqualsTheReferenceBitForBit) {
  SHUNT_NEEDS_DEVICE();
  for (const Topology& topology :
       {Topology::single_node(1), Topology::single_node(2), Topology::virtual_nodes(5, 2), Topology::single_node(8)}) {
    std::vector<ShuffleCase> cases;
    for (std::uint64_t seed = 0; cases.size() < 30; ++seed)
      if (ShuffleCase drawn = random_shuffle_case(seed, topology); is_for_decoders(drawn))
        cases.push_back(std::move(drawn));
    run_cases(topology, cases);
  }
}

/// Two or three copies of some experts, with shares.
ExpertMap map_with_replicas() {
  return ExpertMap::from_placement(10, {{0, 1, 2}, {3, 4, 5, 0}, {6, 7, 1, 2}, {8, 9, 0, 4}},
                                   {{1, 7, 1}, {1, 3, 1, 2}, {1, 1, 2, 4}, {1, 1, 1, 1}});
}

TEST(DeviceDecoder, ServesEveryNumberOfTokens) {
  SHUNT_NEEDS_DEVICE();
  constexpr std::int64_t kMost = 256;
  const std::vector<std::vector<std::int64_t>> sizes = {{1, 0, 2, 3},       {31, 32, 33, 0},     {64, 63, 0, 65},
                                                        {127, 128, 1, 129}, {256, 255, 254, 0},  {0, 0, 0, 0},
                                                        {5, 100, 200, 17},  {256, 256, 256, 256}};
  std::vector<std::pair<DecodeShape, DecodeStep>> steps;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const DecodeShape shape{.map = i % 2 == 0 ? map_with_replicas() : ExpertMap::contiguous(13, 4),
                            .topk = static_cast<std::int32_t>(1 + i),
                            .max_tokens = kMost,
                            .hidden = i % 3 == 0 ? 33 : 64,
                            .dtype = i % 3 == 0   ? f32
                                     : i % 3 == 1 ? bf16
                                                  : f16};
    steps.emplace_back(shape, draw_decode_step(i, shape, sizes[i]));
  }
  ASSERT_NO_THROW(World::spawn(4, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 64 << 20});
    for (const auto& [shape, step] : steps) {
      DecodingRank rank(world, heap, shape);
      for (const DecodingRank::Calls calls : {DecodingRank::Calls::whole, DecodingRank::Calls::halves})
        rank.take(step, calls);
      world.barrier();
    }
  }));
}

// Blocks of as many threads as there can be.
TEST(DeviceDecoder, ServesTheLongestRowsWithReplicas) {
  SHUNT_NEEDS_DEVICE();
  const DecodeShape shape{
      .map = map_with_replicas(), .topk = 5, .max_tokens = 24, .hidden = (64 << 10) / 4 + 64, .dtype = f32};
  const DecodeStep step = draw_decode_step(1, shape, {24, 7, 0, 20});
  ASSERT_NO_THROW(World::spawn(4, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 256 << 20});
    DecodingRank rank(world, heap, shape);
    rank.take(step);
    world.barrier();
  }));
}

// The copies of a token lie on the nodes that it needs.
TEST(DeviceDecoder, EqualsTheReferenceWithReplicasOnSeveralNodes) {
  SHUNT_NEEDS_DEVICE();
  const Topology topology = Topology::virtual_nodes(6, 3);
  std::vector<ShuffleCase> cases;
  for (std::uint64_t seed = 1000; cases.size() < 20; ++seed)
    if (ShuffleCase drawn = random_shuffle_case(seed, topology);
        is_for_decoders(drawn) && drawn.routing.map.has_replicas())
      cases.push_back(std::move(drawn));
  run_cases(topology, cases);
}

TEST(DeviceDecoder, SomeRanksMayCallHalves) {
  SHUNT_NEEDS_DEVICE();
  const DecodeShape shape{.map = map_with_replicas()};
  ASSERT_NO_THROW(World::spawn(4, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DecodingRank rank(world, heap, shape);
    for (std::uint64_t seed = 0; seed < 10; ++seed)
      rank.take(draw_decode_step(seed, shape, {16, 3, 0, 11}),
                (seed + world.rank().index()) % 3 == 0 ? DecodingRank::Calls::halves : DecodingRank::Calls::whole);
    world.barrier();
  }));
}

// Were a half to wait, rank 0 would miss its deadline.
TEST(DeviceDecoder, HalvesThatSendWaitForNobody) {
  SHUNT_NEEDS_DEVICE();
  const DecodeShape shape{.map = ExpertMap::contiguous(4, 2)};
  const DecodeStep step = draw_decode_step(1, shape, {16, 5});
  ASSERT_NO_THROW(World::spawn(2, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DecodingRank rank(world, heap, shape, std::chrono::seconds(2));
    const auto one_after_the_other = [&](const std::function<void()>& half) {
      if (world.rank().value == 0) {
        half();
        device::check(cudaStreamSynchronize(rank.stream()), "finish");
      }
      world.barrier();
      if (world.rank().value == 1) half();
    };
    one_after_the_other([&] { rank.send(step); });
    (void)rank.decoder().dispatch_receive().wait();
    rank.compare_rows(step);
    rank.load_expert_out(step);
    one_after_the_other([&] { rank.decoder().combine_send(); });
    rank.receive(step);
    world.barrier();
  }));
}

TEST(DeviceDecoder, GraphsAreReplayedWithOtherRoutings) {
  SHUNT_NEEDS_DEVICE();
  const DecodeShape shape{.map = map_with_replicas(), .max_tokens = 40};
  ASSERT_NO_THROW(World::spawn(4, [&](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DecodingRank rank(world, heap, shape);
    const std::vector<std::int64_t> num_tokens = {40, 17, 0, 33};
    const auto capture = [&](DecodingRank::Calls calls) {
      return std::make_unique<device::CapturedGraph>(
          rank.stream(), [&] { rank.put_on_stream(num_tokens[world.rank().index()], calls); });
    };
    const auto whole = capture(DecodingRank::Calls::whole);
    const auto halves = capture(DecodingRank::Calls::halves);
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const DecodeStep step = draw_decode_step(seed, shape, num_tokens);
      rank.load(step);
      world.barrier();
      for (int times = 0; times < 3; ++times) (seed % 2 == 0 ? whole : halves)->replay();
      rank.compare(step);
      world.barrier();
    }
  }));
}

TEST(DeviceDecoder, AnExpertThatATokenNamesTwiceIsDroppedOnce) {
  SHUNT_NEEDS_DEVICE();
  for (const std::int32_t topk : {2, 5, 8}) {
    const DecodeShape shape{.map = map_with_replicas(), .topk = topk, .max_tokens = 70};
    ASSERT_NO_THROW(World::spawn(4, [&](World& world) {
      const DeviceHeap heap(world, {.bytes = 16 << 20});
      DecodingRank rank(world, heap, shape);
      for (std::uint64_t seed = 0; seed < 5; ++seed)
        rank.take(naming_twice(draw_decode_step(seed, shape, {70, 33, 0, 69}), shape));
      world.barrier();
    }));
  }
}

TEST(DeviceDecoder, TakesOneLaunchToTheExpertsAndTwoBack) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    const Tensor x = heap.allocate(bf16, 4, 8);
    const Tensor out = heap.allocate(bf16, 4, 8);
    const Tensor experts = heap.allocate(f32, 4, 1);
    for (const DType dtype : {bf16, fp8_e4m3}) {
      DeviceDecoder decoder(world, heap, ExpertMap::contiguous(2, 1), {.hidden = 8, .dtype = dtype, .max_tokens = 4});
      const DeviceRouting routing{.experts = reinterpret_cast<const std::int32_t*>(experts.data), .num_tokens = 4};
      const auto launches = [&](const std::function<void()>& work) {
        return blocks_of_kernels(decoder.stream(), work).size();
      };
      EXPECT_EQ(launches([&] { (void)decoder.dispatch(routing, x); }), dtype == fp8_e4m3 ? 2u : 1u);
      EXPECT_EQ(launches([&] { (void)decoder.combine({.out = out}); }), 2u);
    }
  }));
}

TEST(DeviceDecoder, RefusesFewMultiprocessors) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    require_error(
        [&] {
          DeviceDecoder(world, heap, ExpertMap::contiguous(2, 1),
                        {.hidden = 8, .dtype = f32, .max_tokens = 4, .sms = 2});
        },
        ErrorCode::unsupported, "sms is 2");
  }));
}

TEST(DeviceDecoder, RefusesOperationsOutOfTurn) {
  SHUNT_NEEDS_DEVICE();
  ASSERT_NO_THROW(World::spawn(1, [](World& world) {
    const DeviceHeap heap(world, {.bytes = 16 << 20});
    DeviceDecoder decoder(world, heap, ExpertMap::contiguous(2, 1), {.hidden = 8, .dtype = f32, .max_tokens = 4});
    const ConstTensor nothing = borrow(static_cast<const void*>(nullptr), f32, 0, 8);
    const auto refuses = [](const std::function<void()>& call) {
      require_error(call, ErrorCode::invalid_argument, "take turns");
    };
    refuses([&] { (void)decoder.combine(); });
    refuses([&] { (void)decoder.dispatch_receive(); });
    (void)decoder.dispatch({.topk = 1}, nothing);
    refuses([&] { (void)decoder.dispatch({.topk = 1}, nothing); });
    refuses([&] { (void)decoder.combine_receive(); });
    decoder.combine_send();
    refuses([&] { (void)decoder.combine(); });
    (void)decoder.combine_receive().wait();
    decoder.dispatch_send({.topk = 1}, nothing);
    refuses([&] { (void)decoder.combine(); });
    (void)decoder.dispatch_receive();
    (void)decoder.combine().wait();
  }));
}

}  // namespace
}  // namespace shunt::test
