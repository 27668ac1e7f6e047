#include "bench/verifier.hpp"

#include <algorithm>
#include <cstring>

#include "bench/reference/rows.hpp"
#include "core/fail.hpp"

namespace shunt::bench {
namespace {

std::vector<Routing> routings_of(const ShuffleConfig& config, const Workload& workload) {
  std::vector<Routing> routings;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(config.ranks); ++rank)
    routings.push_back(workload.routing(rank).view(config.topk));
  return routings;
}

}  // namespace

Verifier::Verifier(const ShuffleConfig& config, const Workload& workload, std::size_t rank, const ShuffleKind& kind)
    : config_(config),
      workload_(workload),
      rank_(rank),
      kind_(kind),
      map_(config.map()),
      topology_(config.topology()),
      plan_(routings_of(config, workload), map_, topology_, {.layout = kind.layout, .max_tokens = kind.max_tokens}) {}

std::vector<Verifier::Delivery> Verifier::deliveries(std::size_t source, std::int64_t token) const {
  std::vector<Delivery> all;
  for (const ReferenceRow& row : plan_.rows_of(RankId(source), token)) {
    const RankId rank = map_.rank(row.expert);
    const ExpertId expert = map_.logical(row.expert);
    const float factor = Workload::expert_factor(expert.value);
    if (kind_.layout != Layout::token_unique)
      all.push_back({rank, expert, row.choice, row.slot.value, factor, row.weight});
    else if (all.empty() || all.back().rank != rank)
      all.push_back({rank, ExpertId(), -1, plan_.unique_row(rank, RankId(source), token), row.weight * factor, 1.0f});
    else
      all.back().factor += row.weight * factor;
  }
  return all;
}

Verifier::SentRow Verifier::sent(std::size_t source, std::int64_t token) const {
  SentRow row;
  row.bytes.resize(static_cast<std::size_t>(config_.hidden) * size_of(workload_.token_dtype()));
  workload_.fill_row(source, token, row.bytes.data());
  row.values = widened(row.bytes, workload_.token_dtype());
  if (kind_.row_dtype != fp8_e4m3) return row;
  const QuantisedRow quantised = reference_quantise(row.values);
  const auto elements = std::as_bytes(std::span(quantised.elements));
  row.bytes.assign(elements.begin(), elements.end());
  row.scales = quantised.scales;
  row.values = rounded_to(quantised.floats(), config_.expert_dtype());
  return row;
}

template <class Visit>
void Verifier::for_each_delivery(const Visit& visit) const {
  for (std::size_t source = 0; source < static_cast<std::size_t>(config_.ranks); ++source)
    for (std::int64_t token = 0; token < config_.tokens; ++token) {
      std::vector<Delivery> here = deliveries(source, token);
      std::erase_if(here, [&](const Delivery& delivery) { return delivery.rank != RankId(rank_); });
      if (here.empty()) continue;
      const SentRow row = sent(source, token);
      for (const Delivery& delivery : here) visit(source, token, row, delivery);
    }
}

void Verifier::check_counts(const std::string& system, const Delivered& delivered) const {
  std::vector<std::int64_t> expected;
  for (std::int32_t local = 0; local < map_.num_local(RankId(rank_)); ++local) {
    const PhysicalId expert(map_.first_physical(RankId(rank_)).value + local);
    for (std::int32_t source = 0; source < config_.ranks; ++source) {
      if (source == 0 || kind_.layout == Layout::padded) expected.push_back(0);
      expected.back() += plan_.num_rows(RankId(source), expert);
    }
  }
  if (delivered.row_counts.size() != expected.size())
    fail(ErrorCode::internal, "{}: rank {}: {} row counts, expected {}", system, rank_, delivered.row_counts.size(),
         expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (delivered.row_counts[i] != expected[i])
      fail(ErrorCode::internal, "{}: rank {}: row count {} is {}, expected {}", system, rank_, i,
           delivered.row_counts[i], expected[i]);
  if (const std::int64_t num_rows = plan_.num_rows(RankId(rank_)); delivered.num_rows != num_rows)
    fail(ErrorCode::internal, "{}: rank {}: {} rows received, expected {}", system, rank_, delivered.num_rows,
         num_rows);
}

void Verifier::check_dispatch(const std::string& system, const Delivered& delivered) const {
  check_counts(system, delivered);
  const ConstTensor& rows = delivered.rows;
  for_each_delivery([&](std::size_t source, std::int64_t token, const SentRow& row, const Delivery& delivery) {
    const auto first_scale = static_cast<std::size_t>(delivery.slot) * row.scales.size();
    const bool fits = delivery.slot < rows.rows && rows.row_bytes() == row.bytes.size() &&
                      std::memcmp(rows.row(delivery.slot), row.bytes.data(), row.bytes.size()) == 0 &&
                      first_scale + row.scales.size() <= delivered.scales.size() &&
                      std::ranges::equal(row.scales, delivered.scales.subspan(first_scale, row.scales.size()));
    if (!fits)
      fail(ErrorCode::internal, "{}: rank {}: row {} is not token {} of rank {}, as expected", system, rank_,
           delivery.slot, token, source);
  });
}

void Verifier::fill_expert_out(const Tensor& expert_out) const {
  HostRows bytes(config_.expert_dtype(), 1, config_.hidden);
  for_each_delivery([&](std::size_t, std::int64_t, const SentRow& row, const Delivery& delivery) {
    bytes.set_floats(0, reference_product(delivery.factor, row.values));
    std::memcpy(expert_out.row(delivery.slot), bytes.tensor().data, bytes.tensor().bytes());
  });
}

std::vector<float> Verifier::result_of(std::int64_t token) const {
  const std::vector<Delivery> all = deliveries(rank_, token);
  if (all.empty()) return std::vector<float>(static_cast<std::size_t>(config_.hidden));
  const SentRow row = sent(rank_, token);
  const DType dtype = config_.expert_dtype();
  std::vector<ReferenceTerm> terms;
  for (const Delivery& delivery : all)
    terms.push_back(
        {delivery.rank, delivery.expert, delivery.choice,
         reference_product(delivery.weight, rounded_to(reference_product(delivery.factor, row.values), dtype))});
  return rounded_to(reference_sum(terms, kind_.order, topology_, RankId(rank_), dtype), dtype);
}

void Verifier::check_combine(const std::string& system, const ConstTensor& result) const {
  if (result.rows != config_.tokens || result.cols != config_.hidden || result.dtype != config_.expert_dtype())
    fail(ErrorCode::internal, "{}: rank {}: the result is {} [{}, {}]", system, rank_, to_string(result.dtype),
         result.rows, result.cols);
  for (std::int64_t token = 0; token < config_.tokens; ++token) {
    const std::vector<float> expected = result_of(token);
    const std::vector<float> actual = widened(std::span(result.row(token), result.row_bytes()), result.dtype);
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (actual[i] != expected[i])
        fail(ErrorCode::internal, "{}: rank {}: token {}, element {} is {}, expected {}", system, rank_, token, i,
             actual[i], expected[i]);
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
           "{}, rank {}: the error of token {} is {:.1e} of its norm, more than the tolerance of {:.0e} for rounding",
           system, rank_, token, error, tolerance);
    largest = std::max(largest, error);
  }
  return largest;
}

}  // namespace shunt::bench
