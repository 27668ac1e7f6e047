// The experts of one rank: SwiGLU networks, applied to the rows that dispatch delivered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
  std::vector<ExpertMatrices> experts{};  ///< by local expert: this rank's first physical expert is 0
};

struct ExpertsOptions {
  /// Rows that go through all three products together: 256 reach 0.954 of the rate of long products at hidden 2048 and
  /// ffn 1024 in bf16, 128 reach 0.906, 512 reach 0.922 (docs/adr/0014).
  std::int64_t block_rows = 256;
  /// `token_unique`: rows of an average expert that are computed before its matrices are read again. Fewer take less
  /// memory for sums and more time: 256 take 1 % more than 512, and no limit 0.5 % less.
  std::int64_t rows_per_expert = 512;
};

/// Computes on the calling thread alone. Every product and the activation are rounded to the dtype.
class Experts {
 public:
  /// Throws Error(unsupported) for other dtypes, and if this build has no library for products.
  explicit Experts(ExpertWeights weights, const ExpertsOptions& options = {});

  /// rows, out: [plan.num_rows(), hidden] in the weights' dtype; they must not overlap. `expert_major`: out's rows are
  /// the experts' outputs, padding is left as it was. `token_unique`: out's rows are sums of weight × output over the
  /// row's experts, ascending, as the reduction tree says (docs/adr/0002), rounded once. Blocks of rows are gathered,
  /// and their outputs added to the sums while both are in the cache, so one row per (token, expert) is never stored
  /// (BRIM, Occult section 3). Not for `padded`.
  void run(const Plan& plan, const ConstTensor& rows, const Tensor& out);

  /// `expert_major` without a plan: expert e has the rows [offsets[e], offsets[e] + counts[e]).
  void run(std::span<const std::int64_t> offsets, std::span<const std::int64_t> counts, const ConstTensor& rows,
           const Tensor& out);

  [[nodiscard]] const ExpertWeights& weights() const { return weights_; }
  [[nodiscard]] std::size_t workspace_bytes() const;

 private:
  struct UniqueRun;

  void load(std::size_t expert);
  void compute(const std::byte* x, std::byte* y, std::int64_t rows);
  void run_unique(const Plan& plan, const ConstTensor& rows, const Tensor& out);
  void run_gathered(const UniqueRun& run, std::int64_t first, std::int64_t last);
  void add_to_sum(const UniqueRun& run, std::int64_t expert_row, const std::byte* y);
  [[nodiscard]] std::int64_t sums_at_once(const Plan& plan) const;

  ExpertWeights weights_;
  ExpertsOptions options_;
  Product gate_up_;
  Product down_;
  AlignedBuffer inner_;      // [block, 2 ffn]
  AlignedBuffer activated_;  // [block, ffn]
  AlignedBuffer gathered_;   // `token_unique`: [block, hidden]
  AlignedBuffer outputs_;    // `token_unique`: [block, hidden]
  AlignedBuffer sums_;       // `token_unique`, not f32: [unique rows of a turn, hidden] in fp32
};

}  // namespace shunt
