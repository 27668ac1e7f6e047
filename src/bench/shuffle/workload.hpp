// The tokens of every rank: a pure function of the configuration, so that any rank can check any other's rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/shuffle/config.hpp"
#include "bench/shuffle/routing_model.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/pruning.hpp"
#include "shunt/routing.hpp"
#include "shunt/tensor.hpp"

namespace shunt::bench {

struct RankRouting {
  std::vector<std::int32_t> experts;  ///< [tokens, topk]; −1: dropped
  std::vector<float> weights;         ///< [tokens, topk]; a trace's, or positive and summing to about 1 per token
  std::vector<PhysicalId> copies;     ///< [tokens, topk]: the copy of the expert that serves the token; −1: dropped

  [[nodiscard]] Routing view(std::int32_t topk) const { return {experts, weights, topk}; }
};

/// What a routing costs under a map, over the tokens of all ranks that have an expert.
struct RoutingFigures {
  double c_t = 0;       ///< mean number of ranks that a token's copies are on
  double c_t_node = 0;  ///< … of nodes
  double load = 1;      ///< (token, expert) pairs of the busiest rank over the mean
};

/// What pruning did to the tokens of all ranks.
struct PruningFigures {
  RoutingFigures before;  ///< of the same tokens and map without pruning
  double mass_kept = 1;
  double share_changed = 0;
  std::int64_t num_dropped = 0;
  bool has_scores = false;  ///< all tokens have scores of all experts; else only weights of a token's own count
};

class Workload {
 public:
  /// Tokens under config's map, pruned if it says so.
  explicit Workload(const ShuffleConfig& config);

  /// The same tokens under another map, pruned or not. Only of a workload that is not pruned itself.
  [[nodiscard]] Workload under(const ExpertMap& map, const PruneRequest& prune) const;

  [[nodiscard]] const RoutingFigures& figures() const { return figures_; }
  [[nodiscard]] const std::optional<PruningFigures>& pruning() const { return pruning_; }
  [[nodiscard]] const RankRouting& routing(std::size_t rank) const { return routing_[rank]; }
  /// Of a workload that is pruned: the same tokens before.
  [[nodiscard]] const RankRouting& unpruned_routing(std::size_t rank) const { return unpruned_[rank]; }
  [[nodiscard]] const RoutingModel& model() const { return *model_; }
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
  /// Prunes, if the configuration says so, and chooses copies under its map.
  void place();
  void choose_copies();
  [[nodiscard]] RoutingFigures count_figures() const;

  /// row(source, receiver) for every row that is delivered.
  template <class Row>
  void for_each_row(bool once_per_rank, const Row& row) const;

  ShuffleConfig config_;
  std::shared_ptr<const RoutingModel> model_;
  ExpertMap map_;
  std::vector<RankRouting> routing_;   // by rank
  std::vector<RankRouting> unpruned_;  // by rank; empty if nothing is pruned
  RoutingFigures figures_;
  std::optional<PruningFigures> pruning_;
};

/// How config.prune asks for the tokens to be pruned.
class TokenPruning {
 public:
  /// Refers to both.
  TokenPruning(const ShuffleConfig& config, const RoutingModel& model);

  /// Valid as long as this object.
  [[nodiscard]] PruneOptions options(RankId source) const;
  /// The model has router scores of all experts for every token of every rank.
  [[nodiscard]] bool has_scores() const { return has_scores_; }
  /// [tokens, experts] of a rank; empty if not all tokens have scores.
  [[nodiscard]] std::vector<float> scores(RankId rank) const;

 private:
  const ShuffleConfig& config_;
  const RoutingModel& model_;
  std::optional<ExpertSimilarity> similarity_;
  bool has_scores_;
};

}  // namespace shunt::bench
