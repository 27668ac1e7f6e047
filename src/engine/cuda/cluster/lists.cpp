#include "engine/cuda/cluster/lists.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/fail.hpp"

namespace shunt::device {
namespace {

constexpr Term kNoTerm{-1, 0, 0.0f, -1, 0};

Term term_of(std::int32_t rank, std::int64_t slot, float weight, std::int32_t choice, shunt::Closes closes) {
  return {rank, static_cast<std::int32_t>(slot), weight, static_cast<std::int16_t>(choice),
          static_cast<std::int16_t>(closes)};
}

Term term_of(const Target& target, std::int32_t choice, shunt::Closes closes) {
  return term_of(target.rank.value, target.slot.value, target.weight, choice, closes);
}

static_assert(static_cast<int>(shunt::Closes::remote_node) == static_cast<int>(Closes::remote_node));

/// [rows, width]; shorter rows are filled up with kNoTerm.
class TermTable {
 public:
  explicit TermTable(std::int32_t width) : width_(static_cast<std::size_t>(width)) {}

  void begin_row() {
    ++num_rows_;
    terms_.resize(num_rows_ * width_, kNoTerm);
    used_ = 0;
  }
  void add(const Term& term) {
    SHUNT_CHECK(used_ < width_);
    terms_[(num_rows_ - 1) * width_ + used_++] = term;
  }
  [[nodiscard]] std::int64_t num_rows() const { return static_cast<std::int64_t>(num_rows_); }
  [[nodiscard]] const std::vector<Term>& terms() const { return terms_; }

 private:
  std::size_t width_;
  std::size_t num_rows_ = 0;
  std::size_t used_ = 0;
  std::vector<Term> terms_;
};

/// Enumerates the parts received from far nodes. Tokens must be visited in ascending order, as each flow holds them.
class FarParts {
 public:
  FarParts(const PlanData& plan, std::span<const OutFlowLists> flows) : plan_(plan), cursors_(flows.size()) {
    std::int64_t first = 0;
    for (std::size_t flow = 0; flow < flows.size(); ++flow) {
      cursors_[flow].first_part = first;
      first += flows[flow].num_parts;
    }
  }

  struct Part {
    std::int32_t flow;
    std::int64_t in_flow;
    std::int64_t in_all;  ///< index over the parts of all flows
  };

  /// The token's next part from a node.
  Part next(std::int64_t token, NodeId node) {
    for (std::size_t flow = 0; flow < cursors_.size(); ++flow) {
      Cursor& cursor = cursors_[flow];
      const OutFlow& out = plan_.out_flows[flow];
      while (cursor.token < out.tokens.size() && out.tokens[cursor.token] < token) ++cursor.token;
      if (plan_.topology.node(out.forwarder) != node || cursor.token == out.tokens.size() ||
          out.tokens[cursor.token] != token)
        continue;
      const std::int64_t part = cursor.part++;
      return {static_cast<std::int32_t>(flow), part, cursor.first_part + part};
    }
    SHUNT_CHECK(false);
    return {};
  }

 private:
  struct Cursor {
    std::size_t token = 0;
    std::int64_t part = 0;
    std::int64_t first_part = 0;
  };
  const PlanData& plan_;
  std::vector<Cursor> cursors_;
};

bool ends_node(shunt::Closes closes) { return closes == shunt::Closes::node || closes == shunt::Closes::remote_node; }

/// Visits the terms of a token's sum in order: near rows, and each far node's part or, if `is_flat`, its rows.
template <class Near, class Far>
void for_each_term(const PlanData& plan, bool is_flat, std::int64_t token, const Near& near, const Far& far) {
  const auto targets = plan.targets_of(token);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const shunt::Closes closes = targets[i].closes;
    if (plan.is_near(targets[i].rank))
      near(targets[i], closes);
    else if (is_flat || ends_node(closes))
      far(targets[i], closes);
  }
}

}  // namespace

template <class T>
ListIn<T> PlanLists::add(std::span<const T> list) {
  constexpr std::size_t kAlignment = 16;
  const std::size_t offset = (block.size() + kAlignment - 1) / kAlignment * kAlignment;
  block.resize(offset + list.size_bytes());
  if (!list.empty()) std::memcpy(block.data() + offset, list.data(), list.size_bytes());
  return {offset, std::ssize(list)};
}

PlanLists::PlanLists(const PlanData& plan, SumOrder order) {
  add_near(plan);
  add_out_flows(plan, order);
  add_in_flows(plan, order);
  if (order == SumOrder::mixed)
    add_mixed_sums(plan);
  else
    add_plain_sums(plan, order == SumOrder::flat);
  add_receiver(plan);
}

std::int64_t PlanLists::num_parts() const {
  std::int64_t sum = 0;
  for (const OutFlowLists& flow : out_flows) sum += flow.num_parts;
  return sum;
}

void PlanLists::add_near(const PlanData& plan) {
  std::vector<Segment> segments;
  TermTable terms(plan.topk);
  for (std::int64_t token = 0; token < plan.num_tokens; ++token) {
    terms.begin_row();
    for (const Target& target : plan.targets_of(token)) {
      if (!plan.is_near(target.rank)) continue;
      segments.push_back({static_cast<std::int32_t>(token), target.rank.value, target.slot.value, target.weight});
      terms.add(term_of(target, target.choice, shunt::Closes::nothing));
    }
  }
  // The order of plans made on devices; see kTileTokens.
  std::ranges::sort(segments, {}, [](const Segment& segment) {
    return std::tuple(segment.token / kTileTokens, segment.rank, segment.slot);
  });
  near = add<Segment>(segments);
  near_terms = add<Term>(terms.terms());
}

void PlanLists::add_out_flows(const PlanData& plan, SumOrder order) {
  for (const OutFlow& flow : plan.out_flows) {
    const NodeId node = plan.topology.node(flow.forwarder);
    const auto for_targets = [&](std::uint32_t token, const auto& visit) {
      for (const Target& target : plan.targets_of(token))
        if (plan.topology.node(target.rank) == node) visit(target);
    };
    OutFlowLists lists{.peer = flow.forwarder};
    std::int64_t num_targets = 0;
    for (const std::uint32_t token : flow.tokens) {
      const std::int64_t before = num_targets;
      for_targets(token, [&](const Target&) { ++num_targets; });
      lists.most_targets = std::max(lists.most_targets, static_cast<std::int32_t>(num_targets - before));
    }
    std::vector<Segment> choices;
    for (std::size_t i = 0; i < flow.tokens.size(); ++i) {
      lists.choices.begins.push_back(std::ssize(choices));
      auto place = static_cast<std::int32_t>(i) * lists.most_targets;
      for_targets(flow.tokens[i], [&](const Target& target) {
        choices.push_back({place++, 0, static_cast<std::int32_t>(flow.tokens[i]) * plan.topk + target.choice, 1.0f});
      });
    }
    lists.choices.begins.push_back(std::ssize(choices));
    lists.num_parts = order == SumOrder::flat ? num_targets : std::ssize(flow.tokens);
    lists.tokens = add<std::int32_t>(std::vector<std::int32_t>(flow.tokens.begin(), flow.tokens.end()));
    lists.choices.all = add<Segment>(choices);
    out_flows.push_back(std::move(lists));
  }
}

void PlanLists::add_in_flows(const PlanData& plan, SumOrder order) {
  for (const InFlow& flow : plan.in_flows) {
    InFlowLists lists{.peer = flow.source, .num_tokens = std::ssize(flow.tokens)};
    for (std::size_t i = 0; i < flow.tokens.size(); ++i)
      lists.most_targets = std::max(lists.most_targets, static_cast<std::int32_t>(flow.targets_of(i).size()));
    std::vector<Segment> rows;
    std::vector<Term> flat;
    TermTable terms(lists.most_targets);
    for (std::size_t i = 0; i < flow.tokens.size(); ++i) {
      lists.rows.begins.push_back(std::ssize(rows));
      terms.begin_row();
      const auto targets = flow.targets_of(i);
      for (std::size_t place = 0; place < targets.size(); ++place) {
        const Target& target = targets[place];
        rows.push_back({static_cast<std::int32_t>(i), target.rank.value, target.slot.value, target.weight});
        terms.add(term_of(target, static_cast<std::int32_t>(place), target.closes));
        flat.push_back(term_of(target, 0, shunt::Closes::node));
      }
    }
    lists.rows.begins.push_back(std::ssize(rows));
    lists.rows.all = add<Segment>(rows);
    lists.terms = add<Term>(terms.terms());
    if (order == SumOrder::flat) lists.flat_terms = add<Term>(flat);
    in_flows.push_back(std::move(lists));
  }
}

void PlanLists::add_plain_sums(const PlanData& plan, bool is_flat) {
  const std::int32_t num_ranks = plan.topology.num_ranks();
  FarParts far(plan, out_flows);
  TermTable tokens(plan.topk);
  for (std::int64_t token = 0; token < plan.num_tokens; ++token) {
    tokens.begin_row();
    for_each_term(
        plan, is_flat, token,
        [&](const Target& target, shunt::Closes closes) { tokens.add(term_of(target, target.choice, closes)); },
        [&](const Target& target, shunt::Closes closes) {
          const FarParts::Part part = far.next(token, plan.topology.node(target.rank));
          tokens.add(term_of(num_ranks + part.flow, part.in_flow, is_flat ? target.weight : 1.0f, -1, closes));
        });
  }
  sums = add<Term>(tokens.terms());
}

void PlanLists::add_mixed_sums(const PlanData& plan) {
  FarParts far(plan, out_flows);
  TermTable tokens(plan.topk), near_nodes(plan.topk), far_nodes(1);
  const auto add_part = [&](std::int64_t part) { tokens.add(term_of(0, part, 1.0f, -1, shunt::Closes::node)); };
  for (std::int64_t token = 0; token < plan.num_tokens; ++token) {
    tokens.begin_row();
    bool begins_node = true;
    for_each_term(
        plan, false, token,
        [&](const Target& target, shunt::Closes closes) {
          if (begins_node) near_nodes.begin_row();
          near_nodes.add(term_of(target, target.choice, closes));
          begins_node = ends_node(closes);
          if (begins_node) add_part(num_parts() + near_nodes.num_rows() - 1);
        },
        [&](const Target& target, shunt::Closes) {
          add_part(far.next(token, plan.topology.node(target.rank)).in_all);
        });
  }
  for (std::size_t flow = 0; flow < out_flows.size(); ++flow)
    for (std::int64_t part = 0; part < out_flows[flow].num_parts; ++part) {
      far_nodes.begin_row();
      far_nodes.add(
          term_of(plan.topology.num_ranks() + static_cast<std::int32_t>(flow), part, 1.0f, -1, shunt::Closes::node));
    }
  sums = add<Term>(tokens.terms());
  near_parts = add<Term>(near_nodes.terms());
  far_parts = add<Term>(far_nodes.terms());
}

void PlanLists::add_receiver(const PlanData& plan) {
  expert_offsets = add<std::int32_t>(plan.expert_offsets);
  expert_counts = add<std::int32_t>(plan.expert_counts);
  row_count = add<std::int32_t>(plan.row_count);
  unique_of_expert_row = add<std::int32_t>(plan.unique_of_expert_row);
  expert_rows_of_unique = add<std::int32_t>(plan.expert_rows_of_unique);
  unique_experts = add<std::int32_t>(plan.unique_experts);
  unique_weights = add<float>(plan.unique_weights);
}

}  // namespace shunt::device
