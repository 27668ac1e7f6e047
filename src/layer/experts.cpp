#include "layer/experts.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "kernels/add_weighted.hpp"
#include "kernels/copy.hpp"
#include "kernels/scale.hpp"
#include "kernels/swiglu.hpp"

namespace shunt {
namespace {

DType checked(DType dtype) {
  if (dtype != f32 && dtype != bf16)
    fail(ErrorCode::unsupported, "experts on the CPU compute in f32 or bf16, not in {}", to_string(dtype));
  return dtype;
}

/// Calls body(first, last) for runs of at most `most` rows, as equal as can be: a short last run would read a whole
/// matrix for few rows.
template <class Body>
void for_blocks(std::int64_t first, std::int64_t last, std::int64_t most, const Body& body) {
  const std::int64_t blocks = (last - first + most - 1) / most;
  for (std::int64_t block = 0; block < blocks; ++block)
    body(first + (last - first) * block / blocks, first + (last - first) * (block + 1) / blocks);
}

}  // namespace

/// One turn of `token_unique`: the expert rows of unique rows [first_unique, …).
struct Experts::UniqueRun {
  const Plan& plan;
  const ConstTensor& rows;
  const Tensor& out;
  std::int64_t first_unique;
  Store store;  // of results
};

Experts::Experts(ExpertWeights weights, const ExpertsOptions& options)
    : weights_(std::move(weights)),
      options_(options),
      gate_up_(checked(weights_.dtype), weights_.hidden, 2 * weights_.ffn),
      down_(weights_.dtype, weights_.ffn, weights_.hidden) {
  SHUNT_CHECK(options.block_rows > 0 && options.rows_per_expert > 0);
  const auto ffn_bytes = static_cast<std::size_t>(options.block_rows * weights_.ffn) * size_of(weights_.dtype);
  inner_.reserve(2 * ffn_bytes);
  activated_.reserve(ffn_bytes);
}

void Experts::load(std::size_t expert) {
  gate_up_.load(weights_.experts[expert].gate_up);
  down_.load(weights_.experts[expert].down);
}

void Experts::compute(const std::byte* x, std::byte* y, std::int64_t rows) {
  const auto ffn = static_cast<std::size_t>(weights_.ffn);
  const std::size_t ffn_bytes = ffn * size_of(weights_.dtype);
  gate_up_.run(x, inner_.data(), rows);
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const std::byte* const gate = inner_.data() + row * 2 * ffn_bytes;
    swiglu_row(gate, gate + ffn_bytes, ffn, weights_.dtype, activated_.data() + row * ffn_bytes);
  }
  down_.run(activated_.data(), y, rows);
}

void Experts::run(const Plan& plan, const ConstTensor& rows, const Tensor& out) {
  for (const auto& [name, tensor] : {std::pair<const char*, ConstTensor>{"rows", rows}, {"out", out}})
    if (tensor.rows != plan.num_rows() || tensor.cols != weights_.hidden || tensor.dtype != weights_.dtype)
      fail(ErrorCode::invalid_argument, "{}: [{}, {}] of {}, expected [{}, {}] of {}", name, tensor.rows, tensor.cols,
           to_string(tensor.dtype), plan.num_rows(), weights_.hidden, to_string(weights_.dtype));
  switch (plan.layout()) {
    case Layout::expert_major: return run(plan.expert_offsets(), plan.expert_counts(), rows, out);
    case Layout::token_unique: return run_unique(plan, rows, out);
    case Layout::padded: fail(ErrorCode::unsupported, "experts on the CPU take no padded rows");
  }
}

void Experts::run(std::span<const std::int64_t> offsets, std::span<const std::int64_t> counts, const ConstTensor& rows,
                  const Tensor& out) {
  SHUNT_CHECK(offsets.size() == weights_.experts.size() && counts.size() == offsets.size());
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] == 0) continue;
    load(expert);
    for_blocks(offsets[expert], offsets[expert] + counts[expert], options_.block_rows,
               [&](std::int64_t first, std::int64_t last) { compute(rows.row(first), out.row(first), last - first); });
  }
}

// In fp32 results hold their own sums, so nothing is saved by taking turns.
std::int64_t Experts::sums_at_once(const Plan& plan) const {
  if (weights_.dtype == f32 || plan.num_expert_rows() == 0) return plan.num_rows();
  const auto wanted = options_.rows_per_expert * static_cast<std::int64_t>(weights_.experts.size());
  const std::int64_t turns = std::max<std::int64_t>(plan.num_expert_rows() / wanted, 1);
  return (plan.num_rows() + turns - 1) / turns;
}

// Within an expert, rows stand in the order of their unique rows, so a turn has a run of each expert's rows. Experts
// ascend within a turn, and so do the terms of each sum.
void Experts::run_unique(const Plan& plan, const ConstTensor& rows, const Tensor& out) {
  SHUNT_CHECK(plan.expert_offsets().size() == weights_.experts.size());
  gathered_.reserve(static_cast<std::size_t>(options_.block_rows) * rows.row_bytes());
  outputs_.reserve(static_cast<std::size_t>(options_.block_rows) * rows.row_bytes());
  const std::int64_t turn = sums_at_once(plan);
  if (weights_.dtype != f32) sums_.reserve(static_cast<std::size_t>(turn * weights_.hidden) * sizeof(float));

  UniqueRun run{plan, rows, out, 0, choose_store(out.bytes())};
  std::vector<std::int64_t> next(plan.expert_offsets().begin(), plan.expert_offsets().end());
  for (; run.first_unique < plan.num_rows(); run.first_unique += turn) {
    for (std::size_t expert = 0; expert < next.size(); ++expert) {
      const std::int64_t first = next[expert];
      const std::int64_t end = plan.expert_offsets()[expert] + plan.expert_counts()[expert];
      const auto uniques = plan.unique_of_expert_row();
      std::int64_t& last = next[expert];
      while (last < end && uniques[static_cast<std::size_t>(last)] < run.first_unique + turn) ++last;
      if (first == last) continue;
      load(expert);
      for_blocks(first, last, options_.block_rows,
                 [&](std::int64_t begin, std::int64_t stop) { run_gathered(run, begin, stop); });
    }
  }
  flush_streaming();
}

void Experts::run_gathered(const UniqueRun& run, std::int64_t first, std::int64_t last) {
  const std::size_t row_bytes = run.rows.row_bytes();
  for (std::int64_t row = first; row < last; ++row) {
    std::byte* target = gathered_.data() + static_cast<std::size_t>(row - first) * row_bytes;
    copy_row(run.rows.row(run.plan.unique_of_expert_row()[static_cast<std::size_t>(row)]), row_bytes,
             std::span(&target, 1), Store::cached);
  }
  compute(gathered_.data(), outputs_.data(), last - first);
  for (std::int64_t row = first; row < last; ++row)
    add_to_sum(run, row, outputs_.data() + static_cast<std::size_t>(row - first) * row_bytes);
}

void Experts::add_to_sum(const UniqueRun& run, std::int64_t expert_row, const std::byte* y) {
  const auto unique = static_cast<std::size_t>(run.plan.unique_of_expert_row()[static_cast<std::size_t>(expert_row)]);
  const auto topk = static_cast<std::size_t>(run.plan.topk());
  const auto terms = run.plan.expert_rows_of_unique().subspan(unique * topk, topk);
  std::size_t term = 0;
  while (terms[term] != expert_row) ++term;
  const float weight = run.plan.unique_weights()[unique * topk + term];
  const bool is_first = term == 0;
  const bool is_last = term + 1 == topk || terms[term + 1] < 0;

  const auto hidden = static_cast<std::size_t>(weights_.hidden);
  std::byte* const result = run.out.row(static_cast<std::int64_t>(unique));
  std::byte* const sum = weights_.dtype == f32 ? result
                                               : sums_.data() + (unique - static_cast<std::size_t>(run.first_unique)) *
                                                                    hidden * sizeof(float);
  std::byte* const target = is_last ? result : sum;
  const DType target_dtype = is_last ? weights_.dtype : f32;
  const Store store = is_last ? run.store : Store::cached;
  if (is_first)
    scale_row(y, weights_.dtype, weight, hidden, target, target_dtype, store);
  else
    add_weighted_row(reinterpret_cast<const float*>(sum), y, weights_.dtype, weight, hidden, target, target_dtype,
                     store);
}

std::size_t Experts::workspace_bytes() const {
  return inner_.bytes() + activated_.bytes() + gathered_.bytes() + outputs_.bytes() + sums_.bytes() +
         gate_up_.workspace_bytes() + down_.workspace_bytes();
}

}  // namespace shunt
