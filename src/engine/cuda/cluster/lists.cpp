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

bool ends_node(shunt::Closes closes) { return closes == shunt::Closes::node || closes == shunt::Closes::remote_node; }

/// A part received from a far node: the sum of a token's rows there or, if sums are flat, one of the rows.
struct FarPart {
  std::int32_t flow = -1;
  std::int64_t in_flow = 0;
};

/// The part that each of the plan's targets adds to a sum; none for targets on near ranks, and for those of a far node
/// before its last, which its forwarder sums.
std::vector<FarPart> far_parts_of(const PlanData& plan, bool is_flat) {
  std::vector<FarPart> parts(plan.targets.size());
  for (std::size_t flow = 0; flow < plan.out_flows.size(); ++flow) {
    std::int64_t count = 0;
    const NodeId node = plan.topology.node(plan.out_flows[flow].forwarder);
    for (const std::uint32_t token : plan.out_flows[flow].tokens)
      for (std::size_t i = plan.first_target[token]; i < plan.first_target[token + 1]; ++i)
        if (plan.topology.node(plan.targets[i].rank) == node && (is_flat || ends_node(plan.targets[i].closes)))
          parts[i] = {static_cast<std::int32_t>(flow), count++};
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Target& target = plan.targets[i];
    SHUNT_CHECK(parts[i].flow >= 0 || plan.is_near(target.rank) || !(is_flat || ends_node(target.closes)));
  }
  return parts;
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
  const std::vector<FarPart> far = far_parts_of(plan, is_flat);
  TermTable tokens(plan.topk);
  for (std::size_t token = 0; token + 1 < plan.first_target.size(); ++token) {
    tokens.begin_row();
    for (std::size_t i = plan.first_target[token]; i < plan.first_target[token + 1]; ++i) {
      const Target& target = plan.targets[i];
      if (plan.is_near(target.rank))
        tokens.add(term_of(target, target.choice, target.closes));
      else if (far[i].flow >= 0)
        tokens.add(term_of(num_ranks + far[i].flow, far[i].in_flow, is_flat ? target.weight : 1.0f, -1, target.closes));
    }
  }
  sums = add<Term>(tokens.terms());
}

void PlanLists::add_mixed_sums(const PlanData& plan) {
  const std::vector<FarPart> far = far_parts_of(plan, false);
  TermTable tokens(plan.topk), near_nodes(plan.topk), far_nodes(1);
  const auto part_of = [](std::int32_t source, std::int64_t part) {
    return term_of(source, part, 1.0f, -1, shunt::Closes::node);
  };
  std::vector<std::int64_t> first_part_of;  // of each flow, among the parts of all
  for (const OutFlowLists& flow : out_flows) {
    first_part_of.push_back(far_nodes.num_rows());
    const auto source = plan.topology.num_ranks() + static_cast<std::int32_t>(first_part_of.size()) - 1;
    for (std::int64_t part = 0; part < flow.num_parts; ++part) {
      far_nodes.begin_row();
      far_nodes.add(part_of(source, part));
    }
  }
  for (std::size_t token = 0; token + 1 < plan.first_target.size(); ++token) {
    tokens.begin_row();
    bool begins_node = true;
    for (std::size_t i = plan.first_target[token]; i < plan.first_target[token + 1]; ++i) {
      const Target& target = plan.targets[i];
      if (plan.is_near(target.rank)) {
        if (begins_node) near_nodes.begin_row();
        near_nodes.add(term_of(target, target.choice, target.closes));
        begins_node = ends_node(target.closes);
        if (begins_node) tokens.add(part_of(0, far_nodes.num_rows() + near_nodes.num_rows() - 1));
      } else if (far[i].flow >= 0) {
        tokens.add(part_of(0, first_part_of[static_cast<std::size_t>(far[i].flow)] + far[i].in_flow));
      }
    }
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
