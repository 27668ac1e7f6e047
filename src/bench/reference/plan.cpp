#include "bench/reference/plan.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "bench/reference/copies.hpp"

namespace shunt {
namespace {

bool equal(const Target& a, const Target& b) {
  return a.rank == b.rank && a.slot == b.slot && a.choice == b.choice && a.closes == b.closes && a.weight == b.weight;
}

}  // namespace

ReferencePlan::ReferencePlan(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                             const PlanOptions& options)
    : routings_(routings.begin(), routings.end()),
      map_(map),
      topology_(topology),
      options_(options),
      dropped_(routings.size()),
      row_counts_(routings.size(), std::vector<std::int64_t>(static_cast<std::size_t>(map.num_physical()))),
      offset_(static_cast<std::size_t>(map.num_physical())),
      num_expert_rows_(routings.size()),
      unique_rows_(routings.size()) {
  collect_rows();
  assign_slots();
  if (options_.layout != Layout::token_unique) return;
  for (const ReferenceRow& row : rows_)
    unique_rows_[map_.rank(row.expert).index()].insert({{row.source, row.token}, 0});
  for (auto& of_rank : unique_rows_) {
    std::int32_t place = 0;
    for (auto& [token, row] : of_rank) row = place++;
  }
}

// Collects rows by source, token, choice. Rows beyond the capacity are dropped, which changes no other row's copy.
void ReferencePlan::collect_rows() {
  std::vector<std::int64_t> accepted(offset_.size());
  for (const RankId source : ranks()) {
    const Routing& routing = routings_[source.index()];
    const auto topk = static_cast<std::size_t>(routing.topk);
    std::vector<std::size_t>& first_row = first_row_.emplace_back();
    for (std::size_t first = 0; first < routing.experts.size(); first += topk) {
      first_row.push_back(rows_.size());
      const auto copies = reference_copies(map_, topology_, source, routing.experts.narrow().subspan(first, topk));
      for (std::size_t choice = 0; choice < topk; ++choice) {
        const PhysicalId expert = copies[choice];
        if (!expert.valid()) continue;
        if (++accepted[expert.index()] > options_.capacity) {
          ++dropped_[source.index()];
          continue;
        }
        rows_.push_back({source, static_cast<std::int32_t>(first / topk), static_cast<std::int32_t>(choice),
                         routing.weight(first + choice), expert, Slot()});
        ++row_counts_[source.index()][expert.index()];
      }
    }
    first_row.push_back(rows_.size());
  }
}

// An expert's rows are in the order of rows_; in `padded` every source has a run of its own.
void ReferencePlan::assign_slots() {
  const bool is_padded = options_.layout == Layout::padded;
  for (const RankId rank : ranks()) {
    std::int64_t offset = 0;
    for (const PhysicalId expert : experts_of(rank)) {
      offset_[expert.index()] = offset;
      for (const RankId source : ranks()) offset += is_padded ? options_.max_tokens : num_rows(source, expert);
      while (offset % options_.alignment != 0) ++offset;
    }
    num_expert_rows_[rank.index()] = offset;
  }
  std::vector<std::int64_t> next = offset_;
  for (const RankId source : ranks()) {
    if (is_padded)
      for (std::size_t expert = 0; expert < next.size(); ++expert)
        next[expert] = offset_[expert] + source.value * options_.max_tokens;
    for (std::size_t row = first_row_[source.index()].front(); row < first_row_[source.index()].back(); ++row)
      rows_[row].slot = Slot(static_cast<std::int32_t>(next[rows_[row].expert.index()]++));
  }
}

std::vector<ReferenceRow> ReferencePlan::rows_of(RankId source, std::int64_t token) const {
  const auto first = first_row_[source.index()].begin() + token;
  std::vector<ReferenceRow> rows(rows_.begin() + static_cast<std::ptrdiff_t>(first[0]),
                                 rows_.begin() + static_cast<std::ptrdiff_t>(first[1]));
  const auto place = [&](const ReferenceRow& row) {
    const RankId rank = map_.rank(row.expert);
    return std::tuple(topology_.node(rank), rank, map_.logical(row.expert));
  };
  std::sort(rows.begin(), rows.end(),
            [&](const ReferenceRow& a, const ReferenceRow& b) { return place(a) < place(b); });
  return rows;
}

std::int64_t ReferencePlan::num_rows(RankId source, PhysicalId expert) const {
  return row_counts_[source.index()][expert.index()];
}

std::int64_t ReferencePlan::num_rows(RankId rank) const {
  return options_.layout == Layout::token_unique ? static_cast<std::int64_t>(unique_rows_[rank.index()].size())
                                                 : num_expert_rows_[rank.index()];
}

std::int32_t ReferencePlan::unique_row(RankId rank, RankId source, std::int64_t token) const {
  return unique_rows_[rank.index()].at({source, static_cast<std::int32_t>(token)});
}

PlanData ReferencePlan::plan(RankId self) const {
  PlanData plan;
  plan.options = options_;
  plan.topology = topology_;
  plan.self = self;
  plan.topk = routings_[self.index()].topk;
  plan.num_local_experts = map_.num_local(self);
  for (const RankId rank : ranks()) plan.first_physical.push_back(map_.first_physical(rank).value);
  plan.first_physical.push_back(map_.num_physical());
  plan.num_tokens = static_cast<std::int64_t>(routings_[self.index()].num_tokens());
  plan.num_dropped = dropped_[self.index()];
  fill_targets(plan);
  fill_rows(plan);
  if (options_.layout == Layout::token_unique) fill_maps(plan);
  if (options_.layout == Layout::padded) {
    for (const PhysicalId expert : experts())
      plan.padded_send_counts.push_back(static_cast<std::int32_t>(num_rows(self, expert)));
  } else {
    fill_traffic(plan);
  }
  return plan;
}

void ReferencePlan::fill_targets(PlanData& plan) const {
  plan.first_target.push_back(0);
  for (std::int32_t token = 0; token < plan.num_tokens; ++token) {
    const auto rows = rows_of(plan.self, token);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const RankId rank = map_.rank(rows[i].expert);
      if (options_.layout != Layout::token_unique)
        plan.targets.push_back({rank, rows[i].slot, static_cast<std::int16_t>(rows[i].choice),
                                closes(plan.self, rows, i), rows[i].weight});
      else if (i + 1 == rows.size() || rank != map_.rank(rows[i + 1].expert))
        plan.targets.push_back({rank, Slot(unique_row(rank, plan.self, token)), -1, closes(plan.self, rows, i), 1.0f});
    }
    plan.first_target.push_back(static_cast<std::uint32_t>(plan.targets.size()));
  }
}

/// The level of the reduction tree that ends with the i-th of a token's rows.
Closes ReferencePlan::closes(RankId self, const std::vector<ReferenceRow>& rows, std::size_t i) const {
  const RankId rank = map_.rank(rows[i].expert);
  const bool is_last = i + 1 == rows.size();
  if (!is_last && map_.rank(rows[i + 1].expert) == rank) return Closes::nothing;
  if (!is_last && topology_.node(map_.rank(rows[i + 1].expert)) == topology_.node(rank)) return Closes::rank;
  return topology_.node(rank) == topology_.node(self) ? Closes::node : Closes::remote_node;
}

void ReferencePlan::fill_rows(PlanData& plan) const {
  for (const RankId rank : ranks()) plan.rows_of_rank.push_back(num_rows(rank));
  plan.num_expert_rows = num_expert_rows_[plan.self.index()];
  for (const PhysicalId expert : experts_of(plan.self)) {
    plan.expert_offsets.push_back(static_cast<std::int32_t>(offset_[expert.index()]));
    if (options_.layout == Layout::padded) continue;
    std::int64_t count = 0;
    for (const RankId source : ranks()) count += num_rows(source, expert);
    plan.expert_counts.push_back(static_cast<std::int32_t>(count));
  }
  plan.expert_offsets.push_back(static_cast<std::int32_t>(plan.num_expert_rows));
}

void ReferencePlan::fill_maps(PlanData& plan) const {
  plan.unique_of_expert_row.assign(static_cast<std::size_t>(plan.num_expert_rows), -1);
  for (const auto& [source_and_token, unique_row] : unique_rows_[plan.self.index()]) {
    const auto& [source, token] = source_and_token;
    std::int32_t filled = 0;
    for (const ReferenceRow& row : rows_of(source, token)) {
      if (map_.rank(row.expert) != plan.self) continue;
      plan.unique_of_expert_row[row.slot.index()] = unique_row;
      plan.expert_rows_of_unique.push_back(row.slot.value);
      plan.unique_experts.push_back(row.expert.value - map_.first_physical(plan.self).value);
      plan.unique_weights.push_back(row.weight);
      ++filled;
    }
    for (; filled < plan.topk; ++filled) {
      plan.expert_rows_of_unique.push_back(-1);
      plan.unique_experts.push_back(-1);
      plan.unique_weights.push_back(0.0f);
    }
  }
}

void ReferencePlan::fill_traffic(PlanData& plan) const {
  TrafficCounts& traffic = plan.traffic;
  for (const RankId source : ranks()) {
    for (const RankId to : ranks()) {
      const auto tokens = num_tokens(source, [&](const ReferenceRow& row) { return map_.rank(row.expert) == to; });
      std::uint64_t rows = 0;
      for (const PhysicalId expert : experts_of(to)) rows += static_cast<std::uint64_t>(num_rows(source, expert));
      if (options_.layout == Layout::token_unique) rows = tokens;
      traffic.rows += rows;
      if (to != source) traffic.rows_between_ranks += rows;
      if (source == plan.self) traffic.sent_rows.push_back(rows);
      traffic.tokens_to_ranks += tokens;
    }
    for (std::int32_t node = 0; node < topology_.num_nodes(); ++node)
      if (topology_.node(source) != NodeId(node))
        traffic.tokens_between_nodes += num_tokens(
            source, [&](const ReferenceRow& row) { return topology_.node(map_.rank(row.expert)) == NodeId(node); });
    traffic.routed_tokens += num_tokens(source, [](const ReferenceRow&) { return true; });
  }
}

template <class Predicate>
std::uint32_t ReferencePlan::num_tokens(RankId source, Predicate counts) const {
  std::set<std::int32_t> tokens;
  for (const ReferenceRow& row : rows_)
    if (row.source == source && counts(row)) tokens.insert(row.token);
  return static_cast<std::uint32_t>(tokens.size());
}

std::vector<RankId> ReferencePlan::ranks() const {
  std::vector<RankId> all;
  for (std::int32_t rank = 0; rank < topology_.num_ranks(); ++rank) all.emplace_back(rank);
  return all;
}

std::vector<PhysicalId> ReferencePlan::experts() const {
  std::vector<PhysicalId> all;
  for (std::int32_t expert = 0; expert < map_.num_physical(); ++expert) all.emplace_back(expert);
  return all;
}

std::vector<PhysicalId> ReferencePlan::experts_of(RankId rank) const {
  std::vector<PhysicalId> local;
  for (const PhysicalId expert : experts())
    if (map_.rank(expert) == rank) local.push_back(expert);
  return local;
}

std::vector<PlanData> reference_plans(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                                      const PlanOptions& options) {
  const ReferencePlan reference(routings, map, topology, options);
  std::vector<PlanData> plans;
  for (std::size_t rank = 0; rank < routings.size(); ++rank) plans.push_back(reference.plan(RankId(rank)));
  return plans;
}

std::string difference(const PlanData& a, const PlanData& b) {
  if (a.options.layout != b.options.layout) return "options";
  if (a.topology.hash() != b.topology.hash()) return "topology";
  if (a.self != b.self) return "self";
  if (a.topk != b.topk) return "topk";
  if (a.num_local_experts != b.num_local_experts) return "num_local_experts";
  if (a.first_physical != b.first_physical) return "first_physical";
  if (a.num_tokens != b.num_tokens) return "num_tokens";
  if (a.num_dropped != b.num_dropped) return "num_dropped";
  if (a.first_target != b.first_target) return "first_target";
  if (!std::equal(a.targets.begin(), a.targets.end(), b.targets.begin(), b.targets.end(), equal)) return "targets";
  if (a.rows_of_rank != b.rows_of_rank) return "rows_of_rank";
  if (a.num_expert_rows != b.num_expert_rows) return "num_expert_rows";
  if (a.expert_offsets != b.expert_offsets) return "expert_offsets";
  if (a.expert_counts != b.expert_counts) return "expert_counts";
  if (a.unique_of_expert_row != b.unique_of_expert_row) return "unique_of_expert_row";
  if (a.expert_rows_of_unique != b.expert_rows_of_unique) return "expert_rows_of_unique";
  if (a.unique_experts != b.unique_experts) return "unique_experts";
  if (a.unique_weights != b.unique_weights) return "unique_weights";
  if (a.traffic != b.traffic) return "traffic";
  if (!std::ranges::equal(a.out_flows, b.out_flows, [](const OutFlow& x, const OutFlow& y) {
        return x.forwarder == y.forwarder && x.tokens == y.tokens;
      }))
    return "out_flows";
  if (!std::ranges::equal(a.in_flows, b.in_flows, [](const InFlow& x, const InFlow& y) {
        return x.source == y.source && x.tokens == y.tokens && x.first_target == y.first_target &&
               std::ranges::equal(x.targets, y.targets, equal) && x.source_counts == y.source_counts;
      }))
    return "in_flows";
  if (a.padded_send_counts != b.padded_send_counts) return "padded_send_counts";
  return "";
}

}  // namespace shunt
