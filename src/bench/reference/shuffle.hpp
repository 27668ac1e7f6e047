// A slow, obvious shuffle: sees the rows of all ranks at once and follows the definitions in design and headers word by
// word. Every operation of the engine is compared with it, bit for bit, and so are the results of a benchmark's
// systems.
#pragma once

#include <span>
#include <vector>

#include "bench/reference/plan.hpp"
#include "bench/reference/rows.hpp"
#include "shunt/engine.hpp"

namespace shunt {

/// In which order a token's rows are summed.
enum class SumOrder {
  tree,     ///< experts ascending within a rank, ranks within a node, nodes
  expert,   ///< experts ascending
  routing,  ///< as the router listed them
};

/// A row that comes back to a token, weighted.
struct ReferenceTerm {
  RankId rank;
  ExpertId expert;      ///< none in `token_unique`, where a rank's experts share one row
  std::int32_t choice;  ///< as in Target
  std::vector<float> values;
};

/// The sum of at least one term for a token of rank `home`, in fp32. With the tree, sums of other nodes are rounded to
/// wire_dtype on their way.
std::vector<float> reference_sum(const std::vector<ReferenceTerm>& terms, SumOrder order, const Topology& topology,
                                 RankId home, DType wire_dtype);

/// A row times a weight.
std::vector<float> reference_product(float weight, std::vector<float> row);

/// What dispatch must deliver on one rank.
struct ReferenceRows {
  HostRows rows;
  HostRows scales;                          ///< [num_rows, scales_per_row]; empty unless rows are fp8
  std::vector<RowOrigin> origins;           ///< [num_rows]
  std::vector<float> weights;               ///< [num_rows]
  std::vector<std::int32_t> source_counts;  ///< `padded` only
  std::vector<bool> defined;                ///< [num_rows]; false for unused rows of `padded`
};

struct ReferenceGradients {
  HostRows expert_out;
  std::vector<float> weights;  ///< [tokens, topk]; empty in `token_unique`
};

/// Every argument and every result is [ranks].
class ReferenceShuffle {
 public:
  /// routings: [ranks], valid, and views of what outlives this object.
  ReferenceShuffle(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                   const PlanOptions& plan_options, const EngineOptions& options);

  [[nodiscard]] const std::vector<PlanData>& plans() const { return plans_; }
  /// With every default filled in.
  [[nodiscard]] const EngineOptions& options() const { return options_; }

  /// scales: of fp8 x; else ignored.
  [[nodiscard]] std::vector<ReferenceRows> dispatch(const std::vector<HostRows>& x,
                                                    const std::vector<HostRows>& scales) const;
  [[nodiscard]] std::vector<HostRows> combine(const std::vector<HostRows>& expert_out) const;
  [[nodiscard]] std::vector<HostRows> dispatch_backward(const std::vector<HostRows>& grad_rows) const;
  [[nodiscard]] std::vector<ReferenceGradients> combine_backward(const std::vector<HostRows>& grad_out,
                                                                 const std::vector<HostRows>& expert_out) const;

 private:
  using Floats = std::vector<float>;
  enum class Weights { applied, ignored };

  [[nodiscard]] ReferenceRows empty_rows(const PlanData& plan) const;
  [[nodiscard]] std::vector<HostRows> pull(const std::vector<HostRows>& rows, Weights weights) const;
  [[nodiscard]] Floats sum_of_token(const PlanData& plan, std::int64_t token, const std::vector<HostRows>& rows,
                                    Weights weights) const;
  [[nodiscard]] ExpertId expert_of(const PlanData& plan, std::int64_t token, const Target& target) const;

  std::vector<Routing> routings_;
  Topology topology_;
  EngineOptions options_;
  std::vector<PlanData> plans_;
};

}  // namespace shunt
