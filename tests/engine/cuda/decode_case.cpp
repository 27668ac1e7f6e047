#include "engine/cuda/decode_case.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "bench/reference/copies.hpp"
#include "core/cuda/check.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

/// The same copies by a map in which each of them is an expert, without those on lost ranks: what is lost changes
/// nothing about the others.
RandomCase without_lost_copies(const DecodeStep& step, const DecodeShape& shape) {
  std::vector<std::vector<ExpertId>> placement(static_cast<std::size_t>(shape.map.num_ranks()));
  for (std::int32_t copy = 0; copy < shape.map.num_physical(); ++copy)
    placement[shape.map.rank(PhysicalId(copy)).index()].emplace_back(copy);
  RandomCase rest = step.routing;
  rest.map = ExpertMap::from_placement(shape.map.num_physical(), placement);
  const auto topk = static_cast<std::size_t>(shape.topk);
  for (std::size_t rank = 0; rank < rest.ranks.size(); ++rank) {
    const std::span experts(rest.ranks[rank].experts);
    for (std::size_t first = 0; first < experts.size(); first += topk) {
      const auto token = experts.subspan(first, topk);
      const auto copies = reference_copies(shape.map, rest.topology, RankId(rank), token);
      for (std::size_t choice = 0; choice < topk; ++choice) {
        const bool is_lost =
            copies[choice].valid() && std::ranges::count(step.lost, shape.map.rank(copies[choice])) > 0;
        token[choice] = is_lost ? -1 : copies[choice].value;
      }
    }
  }
  return rest;
}

void ask_reference(DecodeStep& step, const DecodeShape& shape) {
  const RandomCase served = step.lost.empty() ? step.routing : without_lost_copies(step, shape);
  const ReferenceShuffle reference(served.routings(), served.map, served.topology, served.options, shape.options());
  step.rows = reference.dispatch(step.x, std::vector<HostRows>(step.x.size()));
  step.results = reference.combine(step.expert_out);
}

}  // namespace

DecodeStep draw_decode_step(std::uint64_t seed, const DecodeShape& shape, const std::vector<std::int64_t>& num_tokens) {
  std::mt19937_64 generator(seed);
  Dice dice(generator);
  const std::int32_t ranks = shape.map.num_ranks();
  const auto draw_rows = [&](std::int64_t rows) {
    HostRows matrix(shape.dtype, rows, shape.hidden);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t col = 0; col < shape.hidden; ++col)
        matrix.set(row, col, 0.1f * dice.weight());  // sums are not exact, so that their order shows
    return matrix;
  };
  DecodeStep step{.routing = {Topology::single_node(ranks),
                              shape.map,
                              {.layout = Layout::padded, .max_tokens = shape.max_tokens},
                              shape.topk,
                              {}},
                  .x = {},
                  .expert_out = {}};
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    RankRouting& routing = step.routing.ranks.emplace_back();
    const std::int64_t tokens = num_tokens[static_cast<std::size_t>(rank)];
    for (std::int64_t token = 0; token < tokens; ++token) {
      const auto order = dice.permutation(shape.map.num_experts());
      for (std::int32_t choice = 0; choice < shape.topk; ++choice) {
        routing.experts.push_back(dice.one_in(9) ? -1 : order[static_cast<std::size_t>(choice)]);
        routing.weights.push_back(dice.weight());
      }
    }
    step.x.push_back(draw_rows(tokens));
    step.expert_out.push_back(draw_rows(shape.map.num_local(RankId(rank)) * ranks * shape.max_tokens));
  }
  ask_reference(step, shape);
  return step;
}

DecodeStep without_rank(const DecodeStep& step, const DecodeShape& shape, RankId lost) {
  DecodeStep rest{step.routing, step.x, step.expert_out, step.lost};
  rest.lost.push_back(lost);
  rest.routing.ranks[lost.index()] = {};
  rest.x[lost.index()] = HostRows(shape.dtype, 0, shape.hidden);
  ask_reference(rest, shape);
  return rest;
}

DecodeStep naming_twice(const DecodeStep& step, const DecodeShape& shape) {
  DecodeStep twice{step.routing, step.x, step.expert_out};
  const auto for_second_choices = [&](const auto& change) {
    for (RankRouting& routing : twice.routing.ranks)
      for (std::size_t entry = 0; entry < routing.experts.size(); ++entry)
        if (entry % static_cast<std::size_t>(shape.topk) % 2 == 1) change(routing.experts, entry);
  };
  for_second_choices([](std::vector<std::int32_t>& experts, std::size_t entry) { experts[entry] = -1; });
  ask_reference(twice, shape);
  for_second_choices(
      [](std::vector<std::int32_t>& experts, std::size_t entry) { experts[entry] = experts[entry - 1]; });
  return twice;
}

DecodingRank::DecodingRank(World& world, const DeviceHeap& heap, const DecodeShape& shape,
                           std::chrono::milliseconds deadline)
    : rank_(world.rank().index()),
      shape_(shape),
      decoder_(world, heap, shape.map,
               {.hidden = shape.hidden, .dtype = shape.dtype, .max_tokens = shape.max_tokens, .deadline = deadline}),
      experts_(heap.allocate(f32, shape.max_tokens, shape.topk)),
      weights_(heap.allocate(f32, shape.max_tokens, shape.topk)),
      x_(heap.allocate(shape.dtype, shape.max_tokens, shape.hidden)),
      result_(heap.allocate(shape.dtype, shape.max_tokens, shape.hidden)),
      scratch_(heap.allocate(f32, 1, 64)) {}

DeviceRouting DecodingRank::routing(std::int64_t num_tokens) const {
  return {.experts = reinterpret_cast<const std::int32_t*>(experts_.data),
          .weights = reinterpret_cast<const float*>(weights_.data),
          .num_tokens = num_tokens,
          .topk = shape_.topk};
}

void DecodingRank::load(const DecodeStep& step) {
  load_tokens(step);
  load_expert_out(step);
  poison(decoder_.rows().data, decoder_.rows().bytes(), stream());
}

void DecodingRank::load_tokens(const DecodeStep& step) {
  const RankRouting& routing = step.routing.ranks[rank_];
  upload(experts_.data, std::as_bytes(std::span(routing.experts)), stream());
  upload(weights_.data, std::as_bytes(std::span(routing.weights)), stream());
  const ConstTensor x = step.x[rank_].tensor();
  upload(x_.data, {x.data, x.bytes()}, stream());
  poison(result_.data, result_.bytes(), stream());
}

void DecodingRank::load_expert_out(const DecodeStep& step) {
  const ConstTensor expert_out = step.expert_out[rank_].tensor();
  upload(decoder_.expert_out().data, {expert_out.data, expert_out.bytes()}, stream());
}

void DecodingRank::put_on_stream(std::int64_t num_tokens, Calls calls) {
  const Tensor x = first_rows(x_, num_tokens);
  const DeviceCombineOptions options{.out = first_rows(result_, num_tokens)};
  const auto other_work = [&] {
    device::check(cudaMemsetAsync(scratch_.data, 1, scratch_.bytes(), stream()), "do something else");
  };
  if (calls == Calls::whole) {
    (void)decoder_.dispatch(routing(num_tokens), x);
    other_work();
    (void)decoder_.combine(options);
    return;
  }
  decoder_.dispatch_send(routing(num_tokens), x);
  other_work();
  (void)decoder_.dispatch_receive();
  decoder_.combine_send();
  other_work();
  (void)decoder_.combine_receive(options);
}

void DecodingRank::send(const DecodeStep& step) {
  load_tokens(step);
  const std::int64_t num_tokens = step.x[rank_].rows();
  decoder_.dispatch_send(routing(num_tokens), first_rows(x_, num_tokens));
}

void DecodingRank::dispatch(const DecodeStep& step, Calls calls) {
  if (calls == Calls::halves) {
    send(step);
    (void)decoder_.dispatch_receive().wait();
  } else {
    load_tokens(step);
    const std::int64_t num_tokens = step.x[rank_].rows();
    (void)decoder_.dispatch(routing(num_tokens), first_rows(x_, num_tokens)).wait();
  }
  compare_rows(step);
}

void DecodingRank::receive(const DecodeStep& step) {
  (void)decoder_.combine_receive({.out = first_rows(result_, step.x[rank_].rows())}).wait();
  compare_result(step);
}

void DecodingRank::take(const DecodeStep& step, Calls calls) {
  dispatch(step, calls);
  load_expert_out(step);
  if (calls == Calls::halves) {
    decoder_.combine_send();
    return receive(step);
  }
  (void)decoder_.combine({.out = first_rows(result_, step.x[rank_].rows())}).wait();
  compare_result(step);
}

void DecodingRank::compare(const DecodeStep& step) {
  compare_rows(step);
  compare_result(step);
}

void DecodingRank::compare_rows(const DecodeStep& step) {
  const ReferenceRows& expected = step.rows[rank_];
  require("dispatch", device_difference(decoder_.rows(), expected.rows, stream(), expected.defined));
  const auto counts = download_as(decoder_.source_counts(), expected.source_counts.size(), stream());
  require("counts", counts == expected.source_counts ? "" : "differ");
}

void DecodingRank::compare_result(const DecodeStep& step) {
  const HostRows& expected = step.results[rank_];
  require("combine", device_difference(first_rows(result_, expected.rows()), expected, stream()));
}

void DecodingRank::require(const char* what, const std::string& difference) const {
  if (!difference.empty()) throw std::runtime_error(fmt::format("rank {}: {} {}", rank_, what, difference));
}

}  // namespace shunt::test
