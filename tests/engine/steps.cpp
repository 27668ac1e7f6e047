#include "engine/steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "bench/reference/copies.hpp"
#include "bench/reference/plan.hpp"
#include "engine/elements.hpp"
#include "support/dice.hpp"

namespace shunt::test {
namespace {

/// The same copies by a map in which each of them is an expert, without those on lost ranks: what is lost changes
/// nothing about the others.
RandomCase without_lost_copies(const Step& step, const StepShape& shape) {
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

void ask_reference(Step& step, const StepShape& shape) {
  const RandomCase served = step.lost.empty() ? step.routing : without_lost_copies(step, shape);
  const ReferenceShuffle reference(served.routings(), served.map, served.topology, served.options, shape.options());
  step.rows = reference.dispatch(step.x, std::vector<HostRows>(step.x.size()));
  step.results = reference.combine(step.expert_out);
}

/// Where rows of a padded layout stand once they are packed, by expert, source and row; −1: nowhere.
std::vector<std::int64_t> packed_places(const StepShape& shape, const std::vector<std::int32_t>& source_counts) {
  const auto ranks = static_cast<std::size_t>(shape.map.num_ranks());
  std::vector<std::int64_t> places;
  std::int64_t next = 0;
  for (std::size_t run = 0; run < source_counts.size(); ++run) {
    if (run % ranks == 0) next = static_cast<std::int64_t>(run) * shape.max_tokens;
    for (std::int64_t row = 0; row < shape.max_tokens; ++row) places.push_back(row < source_counts[run] ? next++ : -1);
  }
  return places;
}

}  // namespace

ExpertMap map_with_replicas() {
  return ExpertMap::from_placement(10, {{0, 1, 2}, {3, 4, 5, 0}, {6, 7, 1, 2}, {8, 9, 0, 4}},
                                   {{1, 7, 1}, {1, 3, 1, 2}, {1, 1, 2, 4}, {1, 1, 1, 1}});
}

StepShape shape_with_copies_on(RankId lost) {
  constexpr std::int32_t kRanks = 4;
  std::vector<std::vector<ExpertId>> placement(kRanks);
  for (std::int32_t expert = 0; expert < 9; ++expert)
    placement[static_cast<std::size_t>(expert % kRanks)].emplace_back(expert);
  for (const std::int32_t expert : {1, 4}) placement[lost.index()].emplace_back(expert);
  return {.map = ExpertMap::from_placement(9, placement)};
}

Step draw_step(std::uint64_t seed, const StepShape& shape, const std::vector<std::int64_t>& num_tokens) {
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
  Step step{{Topology::single_node(ranks), shape.map, shape.plan(), shape.topk, {}}};
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
  }
  step.plans = reference_plans(step.routing.routings(), shape.map, step.routing.topology, shape.plan());
  for (const PlanData& plan : step.plans) step.expert_out.push_back(draw_rows(plan.num_rows()));
  ask_reference(step, shape);
  return step;
}

Step without_rank(const Step& step, const StepShape& shape, RankId lost) {
  Step rest{step.routing, step.x, step.expert_out, step.lost};
  rest.lost.push_back(lost);
  rest.routing.ranks[lost.index()] = {};
  rest.x[lost.index()] = HostRows(shape.dtype, 0, shape.hidden);
  ask_reference(rest, shape);
  return rest;
}

Step naming_twice(const Step& step, const StepShape& shape) {
  Step twice{step.routing, step.x, step.expert_out};
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

PaddedRank::PaddedRank(World& world, const Place& place, const StepShape& shape, std::chrono::milliseconds deadline)
    : rank_(world.rank().index()),
      shape_(shape),
      engine_(world, place.options({.hidden = shape.hidden, .dtype = shape.dtype, .deadline = deadline},
                                   small_device(shape.max_tokens))),
      experts_(engine_.allocate(f32, shape.max_tokens, shape.topk)),
      weights_(engine_.allocate(f32, shape.max_tokens, shape.topk)),
      x_(engine_.allocate(shape.dtype, shape.max_tokens, shape.hidden)),
      result_(engine_.allocate(shape.dtype, shape.max_tokens, shape.hidden)) {}

void PaddedRank::put(const HostRows& rows, const Tensor& to) {
  engine_.copy(rows.tensor(), first_rows(to, rows.rows()));
}

void PaddedRank::load_tokens(const Step& step) {
  const RankRouting& routing = step.routing.ranks[rank_];
  const std::int64_t num_tokens = step.x[rank_].rows();
  write(engine_, routing.experts, first_rows(experts_, num_tokens));
  write(engine_, routing.weights, first_rows(weights_, num_tokens));
  put(step.x[rank_], x_);
  poison(engine_, result_);
}

void PaddedRank::plan(std::int64_t num_tokens) {
  const auto count = static_cast<std::size_t>(num_tokens * shape_.topk);
  const std::span experts(reinterpret_cast<const std::int32_t*>(experts_.data), count);
  const std::span weights(reinterpret_cast<const float*>(weights_.data), count);
  plan_ = engine_.plan({experts, weights, shape_.topk, engine_.memory()}, shape_.map, shape_.plan());
  expert_out_ = engine_.expert_out(plan_);
}

void PaddedRank::issue_dispatch(const Step& step) {
  load_tokens(step);
  plan(step.x[rank_].rows());
  dispatched_.emplace(engine_.dispatch(plan_, first_rows(x_, step.x[rank_].rows())));
}

void PaddedRank::finish_dispatch(const Step& step, Settle settle) {
  while (settle == Settle::by_asking && !dispatched_->done()) std::this_thread::yield();
  rows_ = dispatched_->wait();
  compare_rows(step);
}

void PaddedRank::issue_combine(const Step& step) {
  load_expert_out(step);
  combined_.emplace(engine_.combine(plan_, expert_out_, {.out = first_rows(result_, step.x[rank_].rows())}));
}

void PaddedRank::finish_combine(const Step& step, Settle settle) {
  while (settle == Settle::by_asking && !combined_->done()) std::this_thread::yield();
  (void)combined_->wait();
  compare_result(step);
}

void PaddedRank::dispatch(const Step& step, Settle settle) {
  issue_dispatch(step);
  finish_dispatch(step, settle);
}

void PaddedRank::combine(const Step& step, Settle settle) {
  issue_combine(step);
  finish_combine(step, settle);
}

void PaddedRank::take(const Step& step, Settle settle) {
  dispatch(step, settle);
  combine(step, settle);
}

void PaddedRank::put_on_stream(std::int64_t num_tokens) {
  plan(num_tokens);
  rows_ = engine_.dispatch(plan_, first_rows(x_, num_tokens)).wait_on(engine_.stream());
  (void)engine_.combine(plan_, expert_out_, {.out = first_rows(result_, num_tokens)});
}

void PaddedRank::load(const Step& step) {
  load_tokens(step);
  load_expert_out(step);
  poison(engine_, rows_.data);
}

void PaddedRank::load_expert_out(const Step& step) {
  const HostRows& given = step.expert_out[rank_];
  if (!shape_.is_packed) return put(given, expert_out_);
  HostRows packed(given.dtype(), given.rows(), given.cols());
  const auto places = packed_places(shape_, step.rows[rank_].source_counts);
  for (std::int64_t row = 0; row < given.rows(); ++row)
    if (const std::int64_t place = places[static_cast<std::size_t>(row)]; place >= 0)
      packed.copy_row(place, given, row);
  put(packed, expert_out_);
}

void PaddedRank::compare(const Step& step) {
  compare_rows(step);
  compare_result(step);
}

void PaddedRank::compare_rows(const Step& step) {
  const ReferenceRows& expected = step.rows[rank_];
  require("counts", values_of(engine_, rows_.source_counts) == expected.source_counts ? "" : "differ");
  HostRows actual(shape_.dtype, rows_.data.rows, shape_.hidden);
  engine_.copy(rows_.data, actual.tensor());
  if (shape_.is_packed) {
    HostRows unpacked(shape_.dtype, actual.rows(), actual.cols());
    const auto places = packed_places(shape_, expected.source_counts);
    for (std::int64_t row = 0; row < actual.rows(); ++row)
      if (const std::int64_t place = places[static_cast<std::size_t>(row)]; place >= 0)
        unpacked.copy_row(row, actual, place);
    actual = unpacked;
  }
  require("dispatch", difference(actual.tensor(), expected.rows, expected.defined));
}

void PaddedRank::compare_result(const Step& step) {
  const HostRows& expected = step.results[rank_];
  HostRows actual(expected.dtype(), expected.rows(), expected.cols());
  engine_.copy(first_rows(result_, expected.rows()), actual.tensor());
  require("combine", difference(actual.tensor(), expected));
}

void PaddedRank::require(const char* what, const std::string& difference) const {
  if (!difference.empty()) throw std::runtime_error(fmt::format("rank {}: {} {}", rank_, what, difference));
}

}  // namespace shunt::test
