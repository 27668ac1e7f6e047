#include "bench/verifier.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"
#include "kernels/fp8.hpp"
#include "kernels/scale.hpp"
#include "shunt/float_formats.hpp"

namespace shunt::bench {
namespace {

float widen(const std::byte* row, DType dtype, std::size_t i) {
  if (dtype == f32) return reinterpret_cast<const float*>(row)[i];
  const std::uint16_t bits = reinterpret_cast<const std::uint16_t*>(row)[i];
  return dtype == bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
}

}  // namespace

std::vector<Verifier::Delivery> Verifier::deliveries(Layout layout) const {
  return layout == Layout::token_unique ? deliveries_to_rank() : deliveries_to_experts(layout);
}

// By expert, source, token: the definition of the slot order.
std::vector<Verifier::Delivery> Verifier::deliveries_to_experts(Layout layout) const {
  std::vector<std::vector<Delivery>> by_expert(static_cast<std::size_t>(map_.num_local(RankId(rank_))));
  const auto topk = static_cast<std::size_t>(config_.topk);
  for (std::size_t source = 0; source < static_cast<std::size_t>(config_.ranks); ++source) {
    std::vector<std::int64_t> from_source(by_expert.size());
    const auto& copies = workload_.routing(source).copies;
    for (std::size_t entry = 0; entry < copies.size(); ++entry) {
      const PhysicalId copy = copies[entry];
      if (!copy.valid() || map_.rank(copy) != RankId(rank_)) continue;
      const std::size_t local = copy.index() - map_.first_physical(RankId(rank_)).index();
      const std::int64_t padded_slot =
          static_cast<std::int64_t>(local * static_cast<std::size_t>(config_.ranks) + source) * config_.tokens +
          from_source[local]++;
      by_expert[local].push_back({source, static_cast<std::int64_t>(entry / topk), padded_slot, factor_of(copy)});
    }
  }
  std::vector<Delivery> all;
  for (const auto& deliveries : by_expert) {
    for (Delivery delivery : deliveries) {
      if (layout == Layout::expert_major) delivery.slot = static_cast<std::int64_t>(all.size());
      all.push_back(delivery);
    }
  }
  return all;
}

std::vector<Verifier::Delivery> Verifier::deliveries_to_rank() const {
  std::vector<Delivery> all;
  for (std::size_t source = 0; source < static_cast<std::size_t>(config_.ranks); ++source)
    for (std::int64_t token = 0; token < config_.tokens; ++token)
      for (const Answer& answer : answers(source, token, Layout::token_unique, SumOrder::tree))
        if (answer.rank == RankId(rank_))
          all.push_back({source, token, static_cast<std::int64_t>(all.size()), answer.factor});
  return all;
}

std::vector<Verifier::Answer> Verifier::answers(std::size_t source, std::int64_t token, Layout layout,
                                                SumOrder order) const {
  const RankRouting& routing = workload_.routing(source);
  const auto topk = static_cast<std::size_t>(config_.topk);
  std::vector<std::pair<PhysicalId, float>> choices;  // copy, weight
  for (std::size_t entry = static_cast<std::size_t>(token) * topk; entry < (static_cast<std::size_t>(token) + 1) * topk;
       ++entry)
    if (routing.copies[entry].valid()) choices.emplace_back(routing.copies[entry], routing.weights[entry]);
  // Copies are numbered by rank, then expert, and ranks lie on nodes in ascending order: this is the order of the tree.
  if (order == SumOrder::tree) std::sort(choices.begin(), choices.end());
  std::vector<Answer> all;
  for (const auto& [copy, weight] : choices) {
    const RankId rank = map_.rank(copy);
    const float factor = factor_of(copy);
    if (layout != Layout::token_unique)
      all.push_back({rank, factor, weight});
    else if (all.empty() || all.back().rank != rank)
      all.push_back({rank, weight * factor, 1.0f});
    else
      all.back().factor += weight * factor;
  }
  return all;
}

void Verifier::fill_sent_row(std::size_t source, std::int64_t token, std::vector<std::byte>& row,
                             std::vector<float>& scales) const {
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  row.resize(hidden * size_of(workload_.token_dtype()));
  workload_.fill_row(source, token, row.data());
  scales.clear();
  if (config_.dtype != fp8_e4m3) return;
  scales.resize(scales_per_row(hidden));
  std::vector<std::byte> quantised(hidden);
  quantise_row(row.data(), workload_.token_dtype(), hidden, reinterpret_cast<std::uint8_t*>(quantised.data()),
               scales.data());
  row.swap(quantised);
}

void Verifier::fill_expert_row(std::size_t source, std::int64_t token, float factor, std::byte* expert_row) const {
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  const DType dtype = config_.expert_dtype();
  std::vector<std::byte> row;
  std::vector<float> scales;
  fill_sent_row(source, token, row, scales);
  if (config_.dtype == fp8_e4m3) {
    std::vector<std::byte> widened(hidden * size_of(dtype));
    dequantise_row(reinterpret_cast<const std::uint8_t*>(row.data()), scales.data(), hidden, widened.data(), dtype);
    row.swap(widened);
  }
  scale_row(row.data(), dtype, factor, hidden, expert_row, dtype, Store::cached);
}

void Verifier::check_dispatch(const std::string& system, Layout layout, const ConstTensor& rows,
                              std::span<const float> scales) const {
  std::vector<std::byte> row;
  std::vector<float> row_scales;
  for (const Delivery& delivery : deliveries(layout)) {
    fill_sent_row(delivery.source, delivery.token, row, row_scales);
    const bool fits =
        delivery.slot < rows.rows && std::memcmp(rows.row(delivery.slot), row.data(), row.size()) == 0 &&
        std::equal(
            row_scales.begin(), row_scales.end(),
            scales.begin() + static_cast<std::ptrdiff_t>(delivery.slot * static_cast<std::int64_t>(row_scales.size())));
    if (!fits)
      fail(ErrorCode::internal, "{}: rank {}: row {} is not token {} of rank {}, as it should be", system, rank_,
           delivery.slot, delivery.token, delivery.source);
  }
}

void Verifier::fill_expert_out(Layout layout, const Tensor& expert_out) const {
  for (const Delivery& delivery : deliveries(layout))
    fill_expert_row(delivery.source, delivery.token, delivery.factor, expert_out.row(delivery.slot));
}

void Verifier::sum(std::size_t source, std::int64_t token, std::span<const Answer> answers, SumOrder order,
                   std::span<float> result) const {
  const DType dtype = config_.expert_dtype();
  const NodeId home = topology_.node(RankId(source));
  std::vector<std::byte> row(result.size() * size_of(dtype));
  const auto join = [](std::vector<float>& into, const std::vector<float>& part) {
    if (into.empty()) {
      into = part;
    } else {
      for (std::size_t i = 0; i < into.size(); ++i) into[i] += part[i];
    }
  };
  std::vector<float> total, node_sum, rank_sum, term(result.size());
  for (std::size_t a = 0; a < answers.size(); ++a) {
    fill_expert_row(source, token, answers[a].factor, row.data());
    for (std::size_t i = 0; i < term.size(); ++i) term[i] = answers[a].weight * widen(row.data(), dtype, i);
    join(rank_sum, term);
    const bool last = a + 1 == answers.size();
    const NodeId node = topology_.node(answers[a].rank);
    const bool tree = order == SumOrder::tree;
    if (last || (tree && answers[a + 1].rank != answers[a].rank)) {
      join(node_sum, rank_sum);
      rank_sum.clear();
    }
    if (last || (tree && topology_.node(answers[a + 1].rank) != node)) {
      if (tree && node != home)
        for (float& value : node_sum) value = rounded_to(value, dtype);
      join(total, node_sum);
      node_sum.clear();
    }
  }
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = answers.empty() ? 0.0f : rounded_to(total[i], dtype);
}

void Verifier::check_combine(const std::string& system, Layout layout, SumOrder order,
                             const ConstTensor& result) const {
  std::vector<float> expected(static_cast<std::size_t>(config_.hidden));
  for (std::int64_t token = 0; token < config_.tokens; ++token) {
    sum(rank_, token, answers(rank_, token, layout, order), order, expected);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (widen(result.row(token), result.dtype, i) != expected[i])
        fail(ErrorCode::internal, "{}: rank {}: token {}, element {} is {}, should be {}", system, rank_, token, i,
             widen(result.row(token), result.dtype, i), expected[i]);
  }
}

double TokenCheck::largest_error(const std::string& system, const RankRouting& routing,
                                 std::span<const std::byte> result, std::int64_t count) const {
  const auto topk = static_cast<std::size_t>(config_.topk);
  const double tolerance = tolerance_of(config_.dtype);
  double largest = 0;
  count = std::min(count, config_.tokens);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t token = i * config_.tokens / count;
    const auto index = static_cast<std::size_t>(token);
    std::vector<std::byte> x(config_.row_bytes());
    workload_.fill_row(rank_, token, x.data());
    const std::vector<float> expected =
        reference_token(widened(x, config_.dtype), std::span(routing.experts).subspan(index * topk, topk),
                        std::span(routing.weights).subspan(index * topk, topk), expert_of_);
    const double error = relative_error(widened(result.subspan(index * x.size(), x.size()), config_.dtype), expected);
    if (!(error <= tolerance))  // NaN included
      fail(ErrorCode::internal,
           "{}, rank {}: token {} is off by {:.1e} of its norm, more than the {:.0e} that rounding explains", system,
           rank_, token, error, tolerance);
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace shunt::bench
