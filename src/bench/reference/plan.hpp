// A slow, obvious planner that has the routing of all ranks and follows the definitions in docs and headers literally.
// Tests compare every plan with it, and benchmarks the output of every system.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/plan_data.hpp"
#include "shunt/expert_map.hpp"
#include "shunt/plan.hpp"
#include "shunt/routing.hpp"
#include "shunt/topology.hpp"

namespace shunt {

/// One routed entry that no limit dropped.
struct ReferenceRow {
  RankId source;
  std::int32_t token;
  std::int32_t choice;
  float weight;
  PhysicalId expert;
  Slot slot;  ///< among the expert-major (or padded) rows of the expert's rank
};

class ReferencePlan {
 public:
  /// routings: [ranks], valid; the viewed memory must outlive this object.
  ReferencePlan(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                const PlanOptions& options);

  /// The rows of a token in the order of the reduction tree: by node, rank, logical expert.
  [[nodiscard]] std::vector<ReferenceRow> rows_of(RankId source, std::int64_t token) const;
  /// Number of rows that a source sends to a copy of an expert.
  [[nodiscard]] std::int64_t num_rows(RankId source, PhysicalId expert) const;
  /// Number of rows that dispatch delivers on a rank, padding included.
  [[nodiscard]] std::int64_t num_rows(RankId rank) const;
  /// `token_unique`: index of a token's row on a rank that it is sent to.
  [[nodiscard]] std::int32_t unique_row(RankId rank, RankId source, std::int64_t token) const;

  /// The plan of a rank, without hash.
  [[nodiscard]] PlanData plan(RankId self) const;

 private:
  using TokenOfRank = std::pair<RankId, std::int32_t>;  // source, token

  void collect_rows();
  void assign_slots();
  void fill_targets(PlanData& plan) const;
  void fill_rows(PlanData& plan) const;
  void fill_maps(PlanData& plan) const;
  [[nodiscard]] Closes closes(RankId self, const std::vector<ReferenceRow>& rows, std::size_t i) const;
  void fill_traffic(PlanData& plan) const;
  template <class Predicate>
  [[nodiscard]] std::uint32_t num_tokens(RankId source, Predicate counts) const;
  [[nodiscard]] std::vector<RankId> ranks() const;
  [[nodiscard]] std::vector<PhysicalId> experts() const;
  [[nodiscard]] std::vector<PhysicalId> experts_of(RankId rank) const;

  std::vector<Routing> routings_;
  ExpertMap map_;
  Topology topology_;
  PlanOptions options_;

  std::vector<std::int64_t> dropped_;                             // by source
  std::vector<ReferenceRow> rows_;                                // by source, token, choice
  std::vector<std::vector<std::size_t>> first_row_;               // [ranks][tokens + 1]: indices into rows_
  std::vector<std::vector<std::int64_t>> row_counts_;             // [ranks][physical experts]
  std::vector<std::int64_t> offset_;                              // [physical experts]
  std::vector<std::int64_t> num_expert_rows_;                     // [ranks]
  std::vector<std::map<TokenOfRank, std::int32_t>> unique_rows_;  // [ranks]; `token_unique`
};

/// The plans of all ranks, without hash. `routings` is [ranks] and valid.
std::vector<PlanData> reference_plans(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                                      const PlanOptions& options);

/// The name of the first field that differs, except the hash; empty if there is none.
std::string difference(const PlanData& a, const PlanData& b);

}  // namespace shunt
