// The tokens of every rank: a pure function of the configuration, so that every rank can check every other's rows.
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
  std::vector<float> weights;      ///< [tokens, topk]; of the trace, or random, positive, and about 1 in sum per token
  std::vector<PhysicalId> copies;  ///< [tokens, topk]: the chosen copy of the expert; −1: dropped

  [[nodiscard]] Routing view(std::int32_t topk) const { return {experts, weights, topk}; }
};

/// Cost of a routing under a map, over all ranks' tokens with at least one expert.
struct RoutingFigures {
  double c_t = 0;       ///< mean number of ranks that a token is sent to
  double c_t_node = 0;  ///< mean number of nodes that a token is sent to
  double load = 1;      ///< (token, expert) pairs of the busiest rank over the mean
};

/// Effect of pruning on the tokens of all ranks.
struct PruningFigures {
  RoutingFigures before;  ///< figures of the same tokens and map without pruning
  double mass_kept = 1;
  double share_changed = 0;
  std::int64_t num_dropped = 0;
  bool has_scores = false;  ///< all tokens have scores of all experts; otherwise pruning uses weights
};

class Workload {
 public:
  /// Tokens under config's map, pruned according to config.prune.
  explicit Workload(const ShuffleConfig& config);

  /// The same tokens under another map and pruning. Only for a workload without pruning.
  [[nodiscard]] Workload with_map(const ExpertMap& map, const PruneRequest& prune) const;

  [[nodiscard]] const RoutingFigures& figures() const { return figures_; }
  [[nodiscard]] const std::optional<PruningFigures>& pruning() const { return pruning_; }
  [[nodiscard]] const RankRouting& routing(std::size_t rank) const { return routing_[rank]; }
  /// For a pruned workload: the routing before pruning.
  [[nodiscard]] const RankRouting& unpruned_routing(std::size_t rank) const { return unpruned_[rank]; }
  [[nodiscard]] const RoutingModel& model() const { return *model_; }
  /// Writes a token's row in the dtype that dispatch receives: the row dtype, or bf16 if rows are quantised to fp8.
  void fill_row(std::size_t rank, std::int64_t token, std::byte* row) const;
  /// All tokens of a rank, in a tensor that owns them.
  [[nodiscard]] Tensor tokens(std::size_t rank) const;
  [[nodiscard]] DType token_dtype() const { return config_.expert_dtype(); }

  /// Rows that one dispatch of all ranks delivers.
  struct RowCounts {
    std::uint64_t delivered = 0;
    std::uint64_t between_ranks = 0;
    std::uint64_t between_nodes = 0;
  };
  [[nodiscard]] RowCounts count_rows(bool once_per_rank) const;

  /// Most rows of any rank, in `token_unique` (once_per_rank) or in `expert_major`.
  [[nodiscard]] std::int64_t most_rows_of_a_rank(bool once_per_rank) const;

  /// A factor that replaces an expert's computation; a power of two, so that multiplication is exact.
  [[nodiscard]] static float expert_factor(std::int32_t expert) { return expert % 2 == 0 ? 0.5f : 2.0f; }

 private:
  /// Chooses copies under the map, and prunes according to config.prune.
  void apply_map();
  void choose_copies();
  [[nodiscard]] RoutingFigures count_figures() const;

  /// Calls row(source, receiver) for every delivered row.
  template <class Row>
  void for_each_row(bool once_per_rank, const Row& row) const;

  ShuffleConfig config_;
  std::shared_ptr<const RoutingModel> model_;
  ExpertMap map_;
  std::vector<RankRouting> routing_;   // by rank
  std::vector<RankRouting> unpruned_;  // by rank; empty without pruning
  RoutingFigures figures_;
  std::optional<PruningFigures> pruning_;
};

/// The arguments of prune() for config.prune.
class TokenPruning {
 public:
  /// Keeps references to both.
  TokenPruning(const ShuffleConfig& config, const RoutingModel& model);

  /// Valid as long as this object.
  [[nodiscard]] PruneOptions options(RankId source) const;
  /// True if the model has router scores of all experts for every token of every rank.
  [[nodiscard]] bool has_scores() const { return has_scores_; }
  /// Scores of a rank's tokens, [tokens, experts]; empty if not all tokens have scores.
  [[nodiscard]] std::vector<float> scores(RankId rank) const;

 private:
  const ShuffleConfig& config_;
  const RoutingModel& model_;
  std::optional<ExpertSimilarity> similarity_;
  bool has_scores_;
};

}  // namespace shunt::bench
