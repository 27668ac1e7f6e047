// A slow, obvious shuffle that has the rows of all ranks and follows the definitions in docs and headers literally.
// Tests compare every operation of the engine with it, bit for bit, and benchmarks the results of every system.
#pragma once

#include <span>
#include <vector>

#include "bench/reference/plan.hpp"
#include "bench/reference/rows.hpp"
#include "shunt/engine.hpp"

namespace shunt {

/// Order in which a token's rows are summed.
enum class SumOrder {
  tree,     ///< experts ascending within a rank, ranks within a node, nodes
  expert,   ///< experts ascending
  routing,  ///< in the router's order
};

/// A weighted row that is returned to a token.
struct ReferenceTerm {
  RankId rank;
  ExpertId expert;      ///< invalid in `token_unique`, where a rank's experts share one row
  std::int32_t choice;  ///< as in Target
  std::vector<float> values;
};

/// The sum of at least one term for a token of rank `home`, in fp32. With the tree, sums of other nodes are rounded to
/// wire_dtype.
std::vector<float> reference_sum(const std::vector<ReferenceTerm>& terms, SumOrder order, const Topology& topology,
                                 RankId home, DType wire_dtype);

/// A row times a weight.
std::vector<float> reference_product(float weight, std::vector<float> row);

/// Expected output of dispatch on one rank.
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
  /// routings: [ranks], valid; the viewed memory must outlive this object.
  ReferenceShuffle(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                   const PlanOptions& plan_options, const EngineOptions& options);

  [[nodiscard]] const std::vector<PlanData>& plans() const { return plans_; }
  /// With every default filled in.
  [[nodiscard]] const EngineOptions& options() const { return options_; }

  /// scales: scales of fp8 x; otherwise ignored.
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
