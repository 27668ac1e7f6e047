// The tokens of every rank: a pure function of the configuration, so that any rank can check any other's rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/shuffle/config.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt::cli {

struct RankRouting {
  std::vector<std::int32_t> experts;  ///< [tokens, topk]; −1: dropped
  std::vector<float> weights;         ///< [tokens, topk]; a trace's, or positive and summing to about 1 per token
  std::vector<PhysicalId> copies;     ///< [tokens, topk]: the copy of the expert that serves the token; −1: dropped

  [[nodiscard]] Routing view(std::int32_t topk) const { return {experts, weights, topk}; }
};

class Workload {
 public:
  explicit Workload(const ShuffleConfig& config);

  [[nodiscard]] const RankRouting& routing(std::size_t rank) const { return routing_[rank]; }
  /// What a token brings, in the dtype that is given to dispatch: the row dtype, or bf16 where rows are quantised to
  /// fp8.
  void fill_row(std::size_t rank, std::int64_t token, std::byte* row) const;
  /// All of a rank's tokens; owned by the tensor.
  [[nodiscard]] Tensor tokens(std::size_t rank) const;
  [[nodiscard]] DType token_dtype() const { return config_.expert_dtype(); }

  /// Rows that one dispatch delivers over all ranks, by where they go.
  struct RowCounts {
    std::uint64_t delivered = 0;
    std::uint64_t between_ranks = 0;
    std::uint64_t between_nodes = 0;
  };
  [[nodiscard]] RowCounts count_rows(bool once_per_rank) const;

  /// Of any rank's rows, in `token_unique` or in `expert_major`, how many it is at most.
  [[nodiscard]] std::int64_t most_rows_of_a_rank(bool once_per_rank) const;

  /// Stands in for an expert's computation; a power of two, so that applying it to a row is exact.
  [[nodiscard]] static float expert_factor(std::int32_t expert) { return expert % 2 == 0 ? 0.5f : 2.0f; }

 private:
  /// row(source, receiver) for every row that is delivered.
  template <class Row>
  void for_each_row(bool once_per_rank, const Row& row) const;

  ShuffleConfig config_;
  ExpertMap map_;
  std::vector<RankRouting> routing_;  // by rank
};

}  // namespace shunt::cli
