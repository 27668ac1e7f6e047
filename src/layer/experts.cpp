#include "layer/experts.hpp"

#include <algorithm>

#include "core/fail.hpp"
#include "kernels/copy.hpp"
#include "kernels/swiglu.hpp"

namespace shunt {
namespace {

DType checked(DType dtype) {
  if (dtype != f32 && dtype != bf16)
    fail(ErrorCode::unsupported, "experts on the CPU compute in f32 or bf16, not in {}", to_string(dtype));
  return dtype;
}

/// Calls body(first, last) for runs of at most `most` rows, of nearly equal length: a short last run would read a whole
/// matrix for few rows.
template <class Body>
void for_blocks(std::int64_t first, std::int64_t last, std::int64_t most, const Body& body) {
  const std::int64_t blocks = (last - first + most - 1) / most;
  for (std::int64_t block = 0; block < blocks; ++block)
    body(first + (last - first) * block / blocks, first + (last - first) * (block + 1) / blocks);
}

}  // namespace

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

void Experts::run(std::span<const std::int32_t> offsets, std::span<const std::int32_t> counts, const ConstTensor& rows,
                  const Tensor& out) {
  SHUNT_CHECK(counts.size() == weights_.experts.size() && offsets.size() == counts.size() + 1);
  for (std::size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] == 0) continue;
    load(expert);
    for_blocks(offsets[expert], offsets[expert] + counts[expert], options_.block_rows,
               [&](std::int64_t first, std::int64_t last) { compute(rows.row(first), out.row(first), last - first); });
  }
}

// Within an expert, rows are in the order of their unique rows, so a turn covers a run of each expert's rows. Experts
// ascend within a turn, and so do the terms of each sum.
void Experts::run_unique(const Plan& plan, const ConstTensor& rows, const Tensor& out) {
  SHUNT_CHECK(plan.expert_counts().size() == weights_.experts.size());
  if (plan.num_expert_rows() == 0) return;
  const auto wanted = options_.rows_per_expert * static_cast<std::int64_t>(weights_.experts.size());
  const std::int64_t turns = std::max<std::int64_t>((plan.num_expert_rows() + wanted / 2) / wanted, 1);
  gathered_.reserve(static_cast<std::size_t>(options_.block_rows) * rows.row_bytes());
  const Store store = choose_store(out.bytes());
  std::vector<std::int64_t> next(plan.expert_offsets().begin(), plan.expert_offsets().end() - 1);
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t first = plan.num_rows() * turn / turns, last = plan.num_rows() * (turn + 1) / turns;
    run_turn(plan, rows, first, last, next);
    sum_turn(plan, out, first, last, store);
  }
  flush_streaming();
}

/// Computes the outputs of all expert rows of the unique rows [first, last), and the terms that they belong to. next:
/// [experts], the first row of each expert that no turn has computed yet.
void Experts::run_turn(const Plan& plan, const ConstTensor& rows, std::int64_t first, std::int64_t last,
                       std::span<std::int64_t> next) {
  const auto uniques = plan.unique_of_expert_row();
  std::vector<std::int64_t> ends(next.size());
  std::size_t num_outputs = 0;
  for (std::size_t expert = 0; expert < next.size(); ++expert) {
    const auto begin = uniques.begin() + next[expert];
    const auto end = uniques.begin() + plan.expert_offsets()[expert] + plan.expert_counts()[expert];
    ends[expert] = std::lower_bound(begin, end, last) - uniques.begin();
    num_outputs += static_cast<std::size_t>(ends[expert] - next[expert]);
  }
  const std::size_t row_bytes = rows.row_bytes();
  outputs_.reserve(num_outputs * row_bytes);
  const auto topk = static_cast<std::size_t>(plan.topk());
  terms_.resize(static_cast<std::size_t>(last - first) * topk);
  num_terms_.assign(static_cast<std::size_t>(last - first), 0);

  std::byte* output = outputs_.data();
  for (std::size_t expert = 0; expert < next.size(); ++expert) {
    if (next[expert] == ends[expert]) continue;
    load(expert);
    for_blocks(next[expert], ends[expert], options_.block_rows, [&](std::int64_t begin, std::int64_t stop) {
      for (std::int64_t row = begin; row < stop; ++row) {
        const auto unique = static_cast<std::size_t>(uniques[static_cast<std::size_t>(row)]);
        const auto block_row = static_cast<std::size_t>(row - begin);
        std::byte* target = gathered_.data() + block_row * row_bytes;
        copy_row(rows.row(static_cast<std::int64_t>(unique)), row_bytes, std::span(&target, 1), Store::cached);
        const std::size_t in_turn = unique - static_cast<std::size_t>(first);
        const std::size_t term = num_terms_[in_turn]++;
        terms_[in_turn * topk + term] = {output + block_row * row_bytes, plan.unique_weights()[unique * topk + term],
                                         Closes::nothing};
      }
      compute(gathered_.data(), output, stop - begin);
      output += static_cast<std::size_t>(stop - begin) * row_bytes;
    });
    next[expert] = ends[expert];
  }
}

void Experts::sum_turn(const Plan& plan, const Tensor& out, std::int64_t first, std::int64_t last, Store store) {
  const auto topk = static_cast<std::size_t>(plan.topk());
  const ReduceFormat format{weights_.dtype, f32, weights_.dtype};
  for (std::int64_t unique = first; unique < last; ++unique) {
    const auto in_turn = static_cast<std::size_t>(unique - first);
    const auto terms = std::span(terms_).subspan(in_turn * topk, num_terms_[in_turn]);
    terms.back().closes = Closes::node;
    reduce_row(terms, static_cast<std::size_t>(weights_.hidden), format, out.row(unique), store);
  }
}

std::size_t Experts::workspace_bytes() const {
  return inner_.bytes() + activated_.bytes() + gathered_.bytes() + outputs_.bytes() + terms_.capacity() * sizeof(Term) +
         num_terms_.capacity() * sizeof(std::size_t) + gate_up_.workspace_bytes() + down_.workspace_bytes();
}

}  // namespace shunt
