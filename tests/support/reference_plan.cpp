#include "support/reference_plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "support/reference_copies.hpp"

namespace shunt::test {
namespace {

// One routed entry that no limit dropped.
struct Row {
  RankId source;
  std::int32_t token;
  std::int32_t choice;
  float weight;
  PhysicalId expert;
  Slot slot;  // among the expert-major (or padded) rows of the expert's rank
};

using TokenOfRank = std::pair<RankId, std::int32_t>;  // source, token

class Reference {
 public:
  Reference(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
            const PlanOptions& options)
      : routings_(routings), map_(map), topology_(topology), options_(options), dropped_(routings.size()) {
    collect_rows();
    assign_slots();
    for (const Row& row : rows_) tokens_for_[map_.rank(row.expert)].insert({row.source, row.token});
  }

  PlanData plan(RankId self) {
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
      for (const PhysicalId expert : experts()) plan.padded_send_counts.push_back(num_rows(self, expert));
    } else {
      fill_traffic(plan);
    }
    return plan;
  }

 private:
  // Rows in order of source, token, choice; beyond capacity they are dropped, which changes no other row's copy.
  void collect_rows() {
    std::map<PhysicalId, std::int64_t> accepted;
    for (const RankId source : ranks()) {
      const Routing& routing = routings_[source.index()];
      std::vector<PhysicalId> copies;  // of the token at hand
      for (std::size_t entry = 0; entry < routing.experts.size(); ++entry) {
        const auto token = static_cast<std::int32_t>(entry) / routing.topk;
        const auto choice = static_cast<std::int32_t>(entry) % routing.topk;
        if (choice == 0)
          copies = reference_copies(map_, topology_, source,
                                    routing.experts.subspan(entry, static_cast<std::size_t>(routing.topk)));
        const PhysicalId expert = copies[static_cast<std::size_t>(choice)];
        if (!expert.valid()) continue;
        if (++accepted[expert] > options_.capacity) {
          ++dropped_[source.index()];
        } else {
          rows_.push_back({source, token, choice, routing.weight(entry), expert, Slot()});
        }
      }
    }
  }

  void assign_slots() {
    for (const RankId rank : ranks()) {
      std::int64_t offset = 0;
      for (const PhysicalId expert : experts_of(rank)) {
        offset_[expert] = offset;
        std::int64_t place = offset;
        for (Row& row : rows_) {
          if (row.expert != expert) continue;
          row.slot = Slot(static_cast<std::int32_t>(place++));
          if (options_.layout == Layout::padded) row.slot = padded_slot(row, offset);
        }
        offset = options_.layout == Layout::padded ? offset + topology_.num_ranks() * options_.max_tokens : place;
        while (offset % options_.alignment != 0) ++offset;
      }
      num_expert_rows_[rank] = offset;
    }
  }

  Slot padded_slot(const Row& row, std::int64_t offset) const {
    const auto before = std::count_if(rows_.begin(), rows_.end(), [&](const Row& other) {
      return other.expert == row.expert && other.source == row.source && other.token < row.token;
    });
    return Slot(static_cast<std::int32_t>(offset + row.source.value * options_.max_tokens + before));
  }

  void fill_targets(PlanData& plan) {
    plan.first_target.push_back(0);
    for (std::int32_t token = 0; token < plan.num_tokens; ++token) {
      const auto rows = rows_in_tree_order(plan.self, token);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const RankId rank = map_.rank(rows[i].expert);
        if (options_.layout != Layout::token_unique)
          plan.targets.push_back({rank, rows[i].slot, static_cast<std::int16_t>(rows[i].choice),
                                  closes(plan.self, rows, i), rows[i].weight});
        else if (i + 1 == rows.size() || rank != map_.rank(rows[i + 1].expert))
          plan.targets.push_back(
              {rank, Slot(unique_row(rank, plan.self, token)), -1, closes(plan.self, rows, i), 1.0f});
      }
      plan.first_target.push_back(static_cast<std::uint32_t>(plan.targets.size()));
    }
  }

  /// What ends with the i-th of a token's rows in the tree.
  Closes closes(RankId self, const std::vector<Row>& rows, std::size_t i) const {
    const RankId rank = map_.rank(rows[i].expert);
    const bool is_last = i + 1 == rows.size();
    if (!is_last && map_.rank(rows[i + 1].expert) == rank) return Closes::nothing;
    if (!is_last && topology_.node(map_.rank(rows[i + 1].expert)) == topology_.node(rank)) return Closes::rank;
    return topology_.node(rank) == topology_.node(self) ? Closes::node : Closes::remote_node;
  }

  void fill_rows(PlanData& plan) {
    for (const RankId rank : ranks())
      plan.rows_of_rank.push_back(options_.layout == Layout::token_unique
                                      ? static_cast<std::int64_t>(tokens_for_[rank].size())
                                      : num_expert_rows_[rank]);
    plan.num_expert_rows = num_expert_rows_[plan.self];
    for (const PhysicalId expert : experts_of(plan.self)) {
      plan.expert_offsets.push_back(offset_[expert]);
      if (options_.layout == Layout::padded) continue;
      std::int64_t count = 0;
      for (const RankId source : ranks()) count += num_rows(source, expert);
      plan.expert_counts.push_back(count);
    }
  }

  void fill_maps(PlanData& plan) {
    plan.unique_of_expert_row.assign(static_cast<std::size_t>(plan.num_expert_rows), -1);
    for (const auto& [source, token] : tokens_for_[plan.self]) {
      std::int32_t filled = 0;
      for (const Row& row : rows_in_tree_order(source, token)) {
        if (map_.rank(row.expert) != plan.self) continue;
        plan.unique_of_expert_row[row.slot.index()] = unique_row(plan.self, source, token);
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

  void fill_traffic(PlanData& plan) {
    TrafficCounts& traffic = plan.traffic;
    for (const RankId source : ranks()) {
      for (const RankId to : ranks()) {
        const auto tokens = num_tokens(source, [&](const Row& row) { return map_.rank(row.expert) == to; });
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
          traffic.tokens_between_nodes +=
              num_tokens(source, [&](const Row& row) { return topology_.node(map_.rank(row.expert)) == NodeId(node); });
      traffic.routed_tokens += num_tokens(source, [](const Row&) { return true; });
    }
  }

  std::vector<Row> rows_in_tree_order(RankId source, std::int32_t token) const {
    std::vector<Row> rows;
    std::copy_if(rows_.begin(), rows_.end(), std::back_inserter(rows),
                 [&](const Row& row) { return row.source == source && row.token == token; });
    const auto place = [&](const Row& row) {
      const RankId rank = map_.rank(row.expert);
      return std::tuple(topology_.node(rank), rank, map_.logical(row.expert));
    };
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) { return place(a) < place(b); });
    return rows;
  }

  std::int32_t unique_row(RankId rank, RankId source, std::int32_t token) {
    const auto& tokens = tokens_for_[rank];
    return static_cast<std::int32_t>(std::distance(tokens.begin(), tokens.find({source, token})));
  }

  std::int32_t num_rows(RankId source, PhysicalId expert) const {
    return static_cast<std::int32_t>(std::count_if(
        rows_.begin(), rows_.end(), [&](const Row& row) { return row.source == source && row.expert == expert; }));
  }

  template <class Predicate>
  std::uint32_t num_tokens(RankId source, Predicate counts) const {
    std::set<std::int32_t> tokens;
    for (const Row& row : rows_)
      if (row.source == source && counts(row)) tokens.insert(row.token);
    return static_cast<std::uint32_t>(tokens.size());
  }

  [[nodiscard]] std::vector<RankId> ranks() const {
    std::vector<RankId> all;
    for (std::int32_t rank = 0; rank < topology_.num_ranks(); ++rank) all.emplace_back(rank);
    return all;
  }
  [[nodiscard]] std::vector<PhysicalId> experts() const {
    std::vector<PhysicalId> all;
    for (std::int32_t expert = 0; expert < map_.num_physical(); ++expert) all.emplace_back(expert);
    return all;
  }
  [[nodiscard]] std::vector<PhysicalId> experts_of(RankId rank) const {
    std::vector<PhysicalId> local;
    for (const PhysicalId expert : experts())
      if (map_.rank(expert) == rank) local.push_back(expert);
    return local;
  }

  std::span<const Routing> routings_;
  const ExpertMap& map_;
  const Topology& topology_;
  PlanOptions options_;

  std::vector<std::int64_t> dropped_;  // by source
  std::vector<Row> rows_;
  std::map<PhysicalId, std::int64_t> offset_;
  std::map<RankId, std::int64_t> num_expert_rows_;
  std::map<RankId, std::set<TokenOfRank>> tokens_for_;  // distinct tokens for a rank, in order of unique rows
};

bool equal(const Target& a, const Target& b) {
  return a.rank == b.rank && a.slot == b.slot && a.choice == b.choice && a.closes == b.closes && a.weight == b.weight;
}

}  // namespace

std::vector<PlanData> reference_plans(std::span<const Routing> routings, const ExpertMap& map, const Topology& topology,
                                      const PlanOptions& options) {
  Reference reference(routings, map, topology, options);
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

}  // namespace shunt::test
