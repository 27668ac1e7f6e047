// The experts of one rank: SwiGLU networks, applied to the rows from dispatch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/reduce.hpp"
#include "layer/aligned_buffer.hpp"
#include "layer/product.hpp"
#include "shunt/dtype.hpp"
#include "shunt/plan.hpp"
#include "shunt/tensor.hpp"

namespace shunt {

/// One expert: y = down · (silu(gate · x) × (up · x)). Borrowed; copies of an expert may share memory.
struct ExpertMatrices {
  const std::byte* gate_up;  ///< [2 ffn, hidden]: gate, then up
  const std::byte* down;     ///< [hidden, ffn]
};

struct ExpertWeights {
  DType dtype = bf16;  ///< of matrices, rows and outputs: f32 or bf16
  std::int64_t hidden = 0;
  std::int64_t ffn = 0;
  std::vector<ExpertMatrices> experts{};  ///< by local expert, starting at this rank's first physical expert
};

struct ExpertsOptions {
  /// Rows that pass through all three products together: at hidden 2048 and ffn 1024 in bf16, 256 rows reach 0.954 of
  /// the rate of long products, 128 reach 0.906, 512 reach 0.922 (docs/adr/0014).
  std::int64_t block_rows = 256;
  /// `token_unique` only: rows per turn of an average expert, up to one and a half times this. Each turn reads all
  /// matrices from memory again, which takes about 20 ÷ this of the products' time (200 GFLOP/s, 10 GB/s). Only one
  /// turn's outputs are stored.
  std::int64_t rows_per_expert = 1024;
};

/// Computes on the calling thread only. Every product and the activation are rounded to the dtype.
class Experts {
 public:
  /// Throws Error(unsupported) for other dtypes, and if this build has no library for products.
  explicit Experts(ExpertWeights weights, const ExpertsOptions& options = {});

  /// rows, out: [plan.num_rows(), hidden] in the weights' dtype; they must not overlap. Not for `padded`.
  /// - `expert_major`: out's rows are the experts' outputs; padding is not written.
  /// - `token_unique`: out's rows are sums of weight × output over the row's experts, ascending, as in the reduction
  ///   tree (docs/adr/0002), rounded once. Inputs are gathered in blocks, and outputs summed turn by turn, so that of a
  ///   large batch's rows per (token, expert) only one turn's outputs are stored (after BRIM, Occult section 3).
  void run(const Plan& plan, const ConstTensor& rows, const Tensor& out);

  /// The same for `expert_major` rows without a plan: offsets and counts as in PlanArrays.
  void run(std::span<const std::int32_t> offsets, std::span<const std::int32_t> counts, const ConstTensor& rows,
           const Tensor& out);

  [[nodiscard]] const ExpertWeights& weights() const { return weights_; }
  [[nodiscard]] std::size_t workspace_bytes() const;

 private:
  void load(std::size_t expert);
  void compute(const std::byte* x, std::byte* y, std::int64_t rows);
  void run_unique(const Plan& plan, const ConstTensor& rows, const Tensor& out);
  void run_turn(const Plan& plan, const ConstTensor& rows, std::int64_t first, std::int64_t last,
                std::span<std::int64_t> next);
  void sum_turn(const Plan& plan, const Tensor& out, std::int64_t first, std::int64_t last, Store store);

  ExpertWeights weights_;
  ExpertsOptions options_;
  Product gate_up_;
  Product down_;
  AlignedBuffer inner_;      // [block, 2 ffn]
  AlignedBuffer activated_;  // [block, ffn]
  AlignedBuffer gathered_;   // `token_unique`: [block, hidden]
  // `token_unique`: data of one turn.
  AlignedBuffer outputs_;               // [expert rows, hidden]
  std::vector<Term> terms_;             // [unique rows, topk]
  std::vector<std::size_t> num_terms_;  // [unique rows]
};

}  // namespace shunt
