#include "plan/planner.hpp"

#include <iterator>
#include <utility>
#include <vector>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "plan/agreement.hpp"
#include "plan/capacity.hpp"
#include "plan/counts.hpp"
#include "plan/demand.hpp"
#include "plan/proposal.hpp"
#include "plan/request.hpp"
#include "plan/slots.hpp"
#include "plan/targets.hpp"
#include "plan/unique.hpp"

namespace shunt {
namespace {

std::uint32_t rounds_for(const PlanOptions& options) {
  if (options.layout == Layout::padded) return 0;
  return options.capacity == PlanOptions::kUnlimited ? 1 : 2;
}

std::uint64_t plan_hash(const Agreement& agreement, const GlobalCounts& counts) {
  return Hasher()
      .add(hash_of(agreement))
      .add_all<std::uint32_t>(counts.rows)
      .add_all<std::uint32_t>(counts.tokens_per_rank)
      .add_all<std::uint32_t>(counts.tokens_per_node)
      .add_all<std::uint32_t>(counts.routed_tokens)
      .value();
}

}  // namespace

struct Planner::State {
  Routing routing;
  const ExpertMap& map;
  const Topology& topology;
  RankId self;
  PlanOptions options;
  Agreement agreement;

  Demand demand;
  std::int64_t num_dropped = 0;
  std::uint32_t round = 0;
  std::uint32_t num_rounds;
  std::vector<std::uint32_t> proposal{};
  GlobalCounts counts{};           // of the last round
  std::vector<TokenList> lists{};  // by source; `token_unique` only

  [[nodiscard]] bool is_last_round() const { return round + 1 == num_rounds; }
  [[nodiscard]] ProposalFormat format() const {
    return {.map = map,
            .topology = topology,
            .self = self,
            .agreement = agreement,
            .round = round,
            .has_lists = is_last_round() && options.layout == Layout::token_unique};
  }

  void propose() { proposal = write_proposal(format(), count(demand, map, topology), demand, routing); }

  void gather(std::span<const std::span<const std::byte>> proposals) {
    const ProposalFormat expected = format();
    counts = empty_counts(map, topology);
    for (std::size_t source = 0; source < proposals.size(); ++source) {
      // The own proposal is read from here: its counts must fit the demand even if the shared copy was altered.
      const auto bytes = source == self.index() ? std::as_bytes(std::span(proposal)) : proposals[source];
      const SourceCounts theirs = read_counts(bytes, expected, RankId(source));
      if (expected.has_lists) lists.push_back(read_list(bytes, expected, RankId(source), theirs));
      append(counts, theirs);
    }
  }

  void drop_beyond_capacity() {
    clamp_rows(counts, options.capacity);
    const auto num_physical = static_cast<std::size_t>(counts.num_physical);
    num_dropped = keep_first_rows(demand, std::span(counts.rows).subspan(self.index() * num_physical, num_physical));
  }

  [[nodiscard]] PlanData start_plan() const {
    PlanData plan;
    plan.options = options;
    plan.topology = topology;
    plan.self = self;
    plan.topk = routing.topk;
    plan.num_local_experts = map.num_local(self);
    for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank)
      plan.first_physical.push_back(map.first_physical(RankId(rank)).value);
    plan.first_physical.push_back(map.num_physical());
    plan.num_tokens = static_cast<std::int64_t>(demand.num_tokens());
    plan.num_dropped = num_dropped;
    plan.hash = plan_hash(agreement, counts);
    return plan;
  }

  void fill_rows(PlanData& plan) const {
    const ExpertRows rows = options.layout == Layout::padded ? padded_rows(map, self, options.max_tokens)
                                                             : expert_rows(counts, map, self, options.alignment);
    const auto local = [&](const std::vector<std::int64_t>& of_expert) {
      const auto first = of_expert.begin() + map.first_physical(self).value;
      return std::vector<std::int64_t>(first, first + plan.num_local_experts);
    };
    plan.num_expert_rows = rows.rows_of_rank[self.index()];
    plan.expert_offsets = local(rows.offsets);
    if (!rows.totals.empty()) plan.expert_counts = local(rows.totals);

    if (options.layout == Layout::token_unique) {
      UniqueRows unique = unique_rows(counts, self);
      plan.rows_of_rank = std::move(unique.rows_of_rank);
      fill_unique_targets(plan, demand, map, unique.first_slot);
      fill_unique_maps(plan, lists);
    } else {
      plan.rows_of_rank = rows.rows_of_rank;
      fill_expert_targets(plan, demand, routing, map, rows.first_slot);
    }
    if (options.layout == Layout::padded) {
      plan.padded_send_counts.resize(static_cast<std::size_t>(map.num_physical()));
      for (const DemandEntry entry : demand.entries) ++plan.padded_send_counts[entry.expert.index()];
    }
  }
};

Planner::Planner(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self,
                 const PlanOptions& options, const EngineShape& shape) {
  check_request(routing, map, topology, self, options);
  state_.reset(new State{.routing = routing,
                         .map = map,
                         .topology = topology,
                         .self = self,
                         .options = options,
                         .agreement = make_agreement(shape, routing.topk, options, map, topology),
                         .demand = read_demand(routing, map, topology, self),
                         .num_rounds = rounds_for(options)});
  if (needs_round()) state_->propose();
}

Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

bool Planner::needs_round() const { return state_->round < state_->num_rounds; }

std::span<const std::byte> Planner::proposal() const {
  SHUNT_CHECK(needs_round());
  return std::as_bytes(std::span(state_->proposal));
}

void Planner::accept(std::span<const std::span<const std::byte>> proposals) {
  SHUNT_CHECK(needs_round());
  SHUNT_CHECK(std::ssize(proposals) == state_->topology.num_ranks());
  const GlobalCounts granted = std::exchange(state_->counts, {});
  state_->gather(proposals);
  if (state_->round > 0) check_kept(state_->counts, granted, state_->self);
  if (!state_->is_last_round()) state_->drop_beyond_capacity();
  ++state_->round;
  if (needs_round()) state_->propose();
}

std::shared_ptr<PlanData> Planner::finish() {
  SHUNT_CHECK(!needs_round());
  auto plan = std::make_shared<PlanData>(state_->start_plan());
  state_->fill_rows(*plan);
  plan->counts = std::move(state_->counts);
  return plan;
}

}  // namespace shunt
