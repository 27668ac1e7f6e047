#include "bench/reference/shuffle.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace shunt {
namespace {

using Floats = std::vector<float>;

EngineOptions with_defaults(EngineOptions options) {
  if (!options.expert_dtype) options.expert_dtype = options.dtype == fp8_e4m3 ? bf16 : options.dtype;
  if (!options.result_dtype) options.result_dtype = options.expert_dtype;
  if (!options.wire_dtype) options.wire_dtype = options.expert_dtype;
  return options;
}

// The sum starts from the first term, not from zero.
template <class Key>
Floats sum(const std::map<Key, Floats>& terms) {
  Floats total = terms.begin()->second;
  for (auto term = std::next(terms.begin()); term != terms.end(); ++term)
    for (std::size_t i = 0; i < total.size(); ++i) total[i] = total[i] + term->second[i];
  return total;
}

// The definition in kernels/dot.hpp.
float dot(const Floats& a, const Floats& b) {
  std::array<float, 32> lanes{};
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float product = a[i] * b[i];
    lanes[i % 32] = lanes[i % 32] + product;
  }
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
  return lanes[0];
}

void count_sources(const PlanData& plan, ReferenceRows& rows) {
  const auto run = static_cast<std::size_t>(plan.options.max_tokens);
  for (std::size_t first = 0; first < rows.defined.size(); first += run)
    rows.source_counts.push_back(
        static_cast<std::int32_t>(std::count(rows.defined.begin() + static_cast<std::ptrdiff_t>(first),
                                             rows.defined.begin() + static_cast<std::ptrdiff_t>(first + run), true)));
}

}  // namespace

Floats reference_product(float weight, Floats row) {
  for (float& value : row) value = weight * value;
  return row;
}

Floats reference_sum(const std::vector<ReferenceTerm>& terms, SumOrder order, const Topology& topology, RankId home,
                     DType wire_dtype) {
  std::map<std::int32_t, Floats> listed;
  std::map<ExpertId, Floats> flat;
  std::map<NodeId, std::map<RankId, std::map<ExpertId, Floats>>> tree;
  for (const ReferenceTerm& term : terms) {
    if (order == SumOrder::routing) listed[term.choice] = term.values;
    if (order == SumOrder::expert) flat[term.expert] = term.values;
    if (order == SumOrder::tree) tree[topology.node(term.rank)][term.rank][term.expert] = term.values;
  }
  if (order == SumOrder::routing) return sum(listed);
  if (order == SumOrder::expert) return sum(flat);

  std::map<NodeId, Floats> node_sums;
  for (const auto& [node, ranks] : tree) {
    std::map<RankId, Floats> rank_sums;
    for (const auto& [rank, experts] : ranks) rank_sums[rank] = sum(experts);
    const Floats node_sum = sum(rank_sums);
    node_sums[node] = node == topology.node(home) ? node_sum : rounded_to(node_sum, wire_dtype);
  }
  return sum(node_sums);
}

ReferenceShuffle::ReferenceShuffle(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                                   const PlanOptions& plan_options, const EngineOptions& options)
    : routings_(routings.begin(), routings.end()),
      topology_(topology),
      options_(with_defaults(options)),
      plans_(reference_plans(routings, map, topology, plan_options)) {}

std::vector<ReferenceRows> ReferenceShuffle::dispatch(const std::vector<HostRows>& x,
                                                      const std::vector<HostRows>& scales) const {
  std::vector<ReferenceRows> received;
  for (const PlanData& plan : plans_) received.push_back(empty_rows(plan));
  for (const PlanData& source : plans_) {
    const HostRows& own_x = x[source.self.index()];
    for (std::int64_t token = 0; token < source.num_tokens; ++token)
      for (const Target& target : source.targets_of(token)) {
        ReferenceRows& receiver = received[target.rank.index()];
        const std::int64_t slot = target.slot.value;
        if (options_.dtype == fp8_e4m3 && own_x.dtype() != fp8_e4m3) {
          const QuantisedRow row = reference_quantise(own_x.floats(token));
          for (std::size_t i = 0; i < row.elements.size(); ++i)
            receiver.rows.set_bits(slot, static_cast<std::int64_t>(i), row.elements[i]);
          receiver.scales.set_floats(slot, row.scales);
        } else {
          receiver.rows.copy_row(slot, own_x, token);
          if (options_.dtype == fp8_e4m3) receiver.scales.copy_row(slot, scales[source.self.index()], token);
        }
        receiver.origins[target.slot.index()] = {source.self.value, static_cast<std::int32_t>(token)};
        receiver.weights[target.slot.index()] = target.weight;
        receiver.defined[target.slot.index()] = true;
      }
  }
  for (const PlanData& plan : plans_) {
    ReferenceRows& rows = received[plan.self.index()];
    if (plan.options.layout == Layout::padded)
      count_sources(plan, rows);
    else
      rows.defined.assign(rows.defined.size(), true);  // rows without a token are padding, defined as zero
  }
  return received;
}

ReferenceRows ReferenceShuffle::empty_rows(const PlanData& plan) const {
  const auto num_rows = static_cast<std::size_t>(plan.num_rows());
  const auto blocks = static_cast<std::int64_t>(scales_per_row(static_cast<std::size_t>(options_.hidden)));
  ReferenceRows rows;
  rows.rows = HostRows(options_.dtype, plan.num_rows(), options_.hidden);
  if (options_.dtype == fp8_e4m3) rows.scales = HostRows(f32, plan.num_rows(), blocks);
  rows.origins.resize(num_rows);
  rows.weights.resize(num_rows);
  rows.defined.resize(num_rows);
  return rows;
}

std::vector<HostRows> ReferenceShuffle::combine(const std::vector<HostRows>& expert_out) const {
  return pull(expert_out, Weights::applied);
}

std::vector<HostRows> ReferenceShuffle::dispatch_backward(const std::vector<HostRows>& grad_rows) const {
  return pull(grad_rows, Weights::ignored);
}

std::vector<HostRows> ReferenceShuffle::pull(const std::vector<HostRows>& rows, Weights weights) const {
  std::vector<HostRows> results;
  for (const PlanData& plan : plans_) {
    HostRows result(*options_.result_dtype, plan.num_tokens, options_.hidden);
    for (std::int64_t token = 0; token < plan.num_tokens; ++token)
      if (!plan.targets_of(token).empty()) result.set_floats(token, sum_of_token(plan, token, rows, weights));
    results.push_back(std::move(result));
  }
  return results;
}

Floats ReferenceShuffle::sum_of_token(const PlanData& plan, std::int64_t token, const std::vector<HostRows>& rows,
                                      Weights weights) const {
  std::vector<ReferenceTerm> terms;
  for (const Target& target : plan.targets_of(token))
    terms.push_back({target.rank, expert_of(plan, token, target), target.choice,
                     reference_product(weights == Weights::applied ? target.weight : 1.0f,
                                       rows[target.rank.index()].floats(target.slot.value))});
  return reference_sum(terms, options_.reduction == Reduction::flat ? SumOrder::expert : SumOrder::tree, topology_,
                       plan.self, *options_.wire_dtype);
}

// In `token_unique` a rank's experts share one row, so there is no expert to order by.
ExpertId ReferenceShuffle::expert_of(const PlanData& plan, std::int64_t token, const Target& target) const {
  if (target.choice < 0) return ExpertId();
  return ExpertId(
      routings_[plan.self.index()].experts.narrow()[static_cast<std::size_t>(token * plan.topk + target.choice)]);
}

std::vector<ReferenceGradients> ReferenceShuffle::combine_backward(const std::vector<HostRows>& grad_out,
                                                                   const std::vector<HostRows>& expert_out) const {
  std::vector<ReferenceGradients> gradients;
  for (const PlanData& plan : plans_) {
    gradients.push_back({HostRows(*options_.expert_dtype, plan.num_rows(), options_.hidden), {}});
    if (plan.options.layout != Layout::token_unique)
      gradients.back().weights.resize(static_cast<std::size_t>(plan.num_tokens * plan.topk));
  }
  for (const PlanData& source : plans_)
    for (std::int64_t token = 0; token < source.num_tokens; ++token)
      for (const Target& target : source.targets_of(token)) {
        const Floats gradient = grad_out[source.self.index()].floats(token);
        gradients[target.rank.index()].expert_out.set_floats(target.slot.value,
                                                             reference_product(target.weight, gradient));
        auto& weights = gradients[source.self.index()].weights;
        if (!weights.empty())
          weights[static_cast<std::size_t>(token * source.topk + target.choice)] =
              dot(gradient, expert_out[target.rank.index()].floats(target.slot.value));
      }
  return gradients;
}

}  // namespace shunt
