// A slow, obvious shuffle: sees the rows of all ranks at once and follows the definitions in design and headers word by
// word. Every operation of the engine is compared with it, bit for bit.
#pragma once

#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/engine.hpp"
#include "support/host_rows.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

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
  /// Keeps references to `all`.
  ReferenceShuffle(const RandomCase& all, const EngineOptions& options);

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
  [[nodiscard]] NodeId node_of(RankId rank) const { return all_.topology.node(rank); }

  const RandomCase& all_;
  EngineOptions options_;
  std::vector<PlanData> plans_;
};

}  // namespace shunt::test
