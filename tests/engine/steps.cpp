#include "engine/steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "bench/reference/case.hpp"
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

/// At the front of each expert's block, where the shape wants that.
void pack_if_wanted(const StepShape& shape, ReferenceRows& rows, HostRows& expert_out) {
  if (shape.is_packed) pack(rows, expert_out, static_cast<std::size_t>(shape.max_tokens * shape.map.num_ranks()));
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

StepRank::StepRank(World& world, const Place& place, const StepShape& shape, std::chrono::milliseconds deadline)
    : StepRank(Engine(world, place.options({.hidden = shape.hidden, .dtype = shape.dtype, .deadline = deadline},
                                           small_device(shape.max_tokens))),
               world.rank(), shape) {}

StepRank::StepRank(Engine engine, RankId rank, const StepShape& shape)
    : rank_(rank.index()),
      shape_(shape),
      engine_(std::move(engine)),
      experts_(engine_.allocate(f32, shape.max_tokens, shape.topk)),
      weights_(engine_.allocate(f32, shape.max_tokens, shape.topk)),
      x_(engine_.allocate(shape.dtype, shape.max_tokens, shape.hidden)),
      result_(engine_.allocate(shape.dtype, shape.max_tokens, shape.hidden)) {
  if (shape.max_rows == 0) return;
  rows_.data = engine_.allocate(shape.dtype, shape.max_rows, shape.hidden);
  expert_out_ = engine_.allocate(shape.dtype, shape.max_rows, shape.hidden);
}

void StepRank::put(const HostRows& rows, const Tensor& to) { engine_.copy(rows.tensor(), first_rows(to, rows.rows())); }

void StepRank::load_tokens(const Step& step) {
  const RankRouting& routing = step.routing.ranks[rank_];
  const std::int64_t num_tokens = step.x[rank_].rows();
  write(engine_, routing.experts, first_rows(experts_, num_tokens));
  write(engine_, routing.weights, first_rows(weights_, num_tokens));
  put(step.x[rank_], x_);
  poison(engine_, result_);
}

void StepRank::plan(std::int64_t num_tokens) {
  const auto count = static_cast<std::size_t>(num_tokens * shape_.topk);
  const std::span experts(reinterpret_cast<const std::int32_t*>(experts_.data), count);
  const std::span weights(reinterpret_cast<const float*>(weights_.data), count);
  PlanOptions options = shape_.plan();
  options.max_rows = shape_.max_rows;
  if (shape_.has_rows_with_plan) options.rows = rows_.data;
  plan_ = engine_.plan({experts, weights, shape_.topk, engine_.memory()}, shape_.map, options);
  if (shape_.max_rows == 0) expert_out_ = engine_.expert_out(plan_);
}

Ticket<Rows> StepRank::start_dispatch(std::int64_t num_tokens) {
  plan(num_tokens);
  const bool gives_rows = shape_.max_rows > 0 && !shape_.has_rows_with_plan;
  return engine_.dispatch(plan_, first_rows(x_, num_tokens), {.out = gives_rows ? rows_.data : Tensor()});
}

void StepRank::issue_dispatch(const Step& step) {
  load_tokens(step);
  dispatched_.emplace(start_dispatch(step.x[rank_].rows()));
}

void StepRank::finish_dispatch(const Step& step, Settle settle) {
  while (settle == Settle::by_asking && !dispatched_->done()) std::this_thread::yield();
  rows_ = dispatched_->wait();
  compare_rows(step);
}

void StepRank::issue_combine(const Step& step) {
  load_expert_out(step);
  combined_.emplace(engine_.combine(plan_, expert_out_, {.out = first_rows(result_, step.x[rank_].rows())}));
}

void StepRank::finish_combine(const Step& step, Settle settle) {
  while (settle == Settle::by_asking && !combined_->done()) std::this_thread::yield();
  (void)combined_->wait();
  compare_result(step);
}

void StepRank::dispatch(const Step& step, Settle settle) {
  issue_dispatch(step);
  finish_dispatch(step, settle);
}

void StepRank::combine(const Step& step, Settle settle) {
  issue_combine(step);
  finish_combine(step, settle);
}

void StepRank::take(const Step& step, Settle settle) {
  dispatch(step, settle);
  combine(step, settle);
}

void StepRank::put_on_stream(std::int64_t num_tokens) {
  rows_ = start_dispatch(num_tokens).wait_on(engine_.stream());
  (void)engine_.combine(plan_, expert_out_, {.out = first_rows(result_, num_tokens)});
}

void StepRank::load(const Step& step) {
  load_tokens(step);
  load_expert_out(step);
  poison(engine_, rows_.data);
}

void StepRank::load_expert_out(const Step& step) {
  ReferenceRows rows = step.rows[rank_];
  HostRows given = step.expert_out[rank_];
  pack_if_wanted(shape_, rows, given);
  put(given, expert_out_);
}

void StepRank::compare(const Step& step) {
  compare_rows(step);
  compare_result(step);
}

void StepRank::compare_rows(const Step& step) {
  ReferenceRows expected = step.rows[rank_];
  HostRows unused = step.expert_out[rank_];
  pack_if_wanted(shape_, expected, unused);
  if (values_of(engine_, rows_.source_counts) != expected.source_counts) throw std::runtime_error("counts differ");
  if (shape_.max_rows > 0 && plan_.read().num_rows != step.plans[rank_].num_rows())
    throw std::runtime_error("the number of rows differs");
  require_same("dispatch", rows_.data, expected.rows, expected.defined);
}

void StepRank::compare_result(const Step& step) { require_same("combine", result_, step.results[rank_]); }

void StepRank::require_same(const char* what, const Tensor& actual, const HostRows& expected,
                            const std::vector<bool>& compared) {
  HostRows read(expected.dtype(), expected.rows(), expected.cols());
  engine_.copy(first_rows(actual, expected.rows()), read.tensor());
  if (const std::string text = difference(read.tensor(), expected, compared); !text.empty())
    throw std::runtime_error(fmt::format("rank {}: {} {}", rank_, what, text));
}

}  // namespace shunt::test
