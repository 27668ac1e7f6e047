#include "plan/planner.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "plan/agreement.hpp"
#include "plan/balance.hpp"
#include "plan/count_sums.hpp"
#include "plan/counts.hpp"
#include "plan/demand.hpp"
#include "plan/proposal.hpp"
#include "plan/relay_list.hpp"
#include "plan/request.hpp"
#include "plan/slots.hpp"
#include "plan/token_list.hpp"

namespace shunt {
namespace {

std::uint32_t rounds_for(const PlanOptions& options) {
  if (options.layout == Layout::padded) return 0;
  return options.capacity == PlanOptions::kUnlimited ? 1 : 2;
}

}  // namespace

struct Planner::State {
  Routing routing;
  const ExpertMap& map;
  const Topology& topology;
  RankId self;
  PlanOptions options;
  Agreement agreement;
  Wiring wiring;

  Demand demand;
  std::int64_t num_dropped = 0;
  std::uint32_t round = 0;
  std::uint32_t num_rounds;
  std::vector<std::uint32_t> proposal{};
  GlobalCounts counts{};                          // of the last round, if there is a capacity limit
  std::optional<CountSums> sums{};                // of the rows that are kept; none for `padded` on one machine
  std::vector<std::optional<TokenList>> lists{};  // by source; `token_unique` only
  std::shared_ptr<PlanData> made{};               // set after the last round
  std::optional<FlowShares> shares{};             // of all ranks; none for `padded`
  std::optional<SlotRuns> slot_runs{};            // several machines only

  [[nodiscard]] bool is_near(RankId rank) const { return wiring.are_near(rank, self); }
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
    const ProposalFormat last = format();
    if (num_rounds > 1) counts = empty_counts(map, topology);
    if (is_last_round()) sums.emplace(map, topology, wiring, self, options.layout);
    for (std::size_t source = 0; source < proposals.size(); ++source) {
      ProposalFormat expected = last;
      expected.has_lists &= is_near(RankId(source));
      // This rank's own proposal is read from private memory: its counts must fit the demand even if the shared copy
      // was altered.
      const auto bytes = source == self.index() ? std::as_bytes(std::span(proposal)) : proposals[source];
      const SourceCounts theirs = read_counts(bytes, expected, RankId(source));
      if (last.has_lists)
        lists.push_back(expected.has_lists ? std::optional(read_list(bytes, expected, RankId(source), theirs))
                                           : std::nullopt);
      if (num_rounds > 1) append(counts, theirs);
      if (sums) sums->add(theirs);
    }
  }

  void drop_beyond_capacity() {
    clamp_rows(counts, options.capacity);
    const auto num_physical = static_cast<std::size_t>(counts.num_physical);
    num_dropped = keep_first_rows(demand, std::span(counts.rows).subspan(self.index() * num_physical, num_physical));
  }

  /// Makes the part of the plan that follows from this rank's routing and all ranks' counts.
  void derive_plan() {
    SHUNT_CHECK(round == num_rounds);
    if (made) return;
    made = std::make_shared<PlanData>();
    made->options = options;
    made->topology = topology;
    made->wiring = wiring;
    made->self = self;
    made->topk = routing.topk;
    made->num_local_experts = map.num_local(self);
    for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank)
      made->first_physical.push_back(map.first_physical(RankId(rank)).value);
    made->first_physical.push_back(map.num_physical());
    made->num_tokens = static_cast<std::int64_t>(demand.num_tokens());
    made->num_dropped = num_dropped;
    // For `padded` nothing is counted; between machines, sums of nothing stand for it.
    if (!sums && !wiring.is_one_host()) sums.emplace(map, topology, wiring, self, options.layout);
    made->hash = sums ? Hasher().add(hash_of(agreement), sums->hash()).value() : hash_of(agreement);
    if (sums) made->traffic = sums->traffic();
    fill_rows(*made);
    if (agreement.flat != 0) {
      sort_by_logical_expert(*made, routing);
      close_flat_sums(*made);
    } else if (topology.num_nodes() > 1) {
      close_sums_of_nodes(*made);
    }
    if (wiring.is_one_host()) return;
    const auto tokens = tokens_of_far_nodes(*made);
    if (options.layout != Layout::padded) {
      const auto tokens_per_node = sums->tokens_per_node();
      shares = choose_flows(options.forwarders, tokens_per_node, topology, wiring);
      made->traffic.heaviest_link = heaviest_link(*shares, wiring);
      made->traffic.least_heaviest_link = least_heaviest_link(tokens_per_node, topology, wiring);
    }
    made->out_flows = split_flows(*made, tokens, shares ? *shares : even_shares(*made, tokens));
  }

  /// True if far rank `from` sends a far list to `to`; one of them is this rank.
  [[nodiscard]] bool has_far_list(RankId from, RankId to) const {
    if (wiring.are_near(from, to)) return false;
    if (!shares || shares->at(from, to) > 0) return true;
    return options.layout == Layout::token_unique &&
           (from == self ? sums->own().tokens_per_rank[to.index()] : sums->tokens_from(from)) > 0;
  }

  /// Source counts are sent to a node once, to this rank's counterpart there.
  [[nodiscard]] bool sends_source_counts(RankId from, RankId to) const {
    return options.layout == Layout::padded && topology.counterpart(from, topology.node(to)) == to;
  }

  [[nodiscard]] std::vector<std::uint32_t> far_list_for(RankId to) const {
    std::vector<std::uint32_t> words;
    const auto flow = std::find_if(made->out_flows.begin(), made->out_flows.end(),
                                   [&](const OutFlow& each) { return each.forwarder == to; });
    write_relay_list(words, *made, flow != made->out_flows.end() ? *flow : OutFlow{to, {}});
    if (sends_source_counts(self, to))
      for (const RankId rank : topology.ranks(topology.node(to)))
        for (std::int32_t expert = 0; expert < map.num_local(rank); ++expert)
          words.push_back(static_cast<std::uint32_t>(
              made->padded_send_counts[map.first_physical(rank).index() + static_cast<std::size_t>(expert)]));
    if (options.layout == Layout::token_unique) {
      const auto list = own_list(proposal, format(), sums->own(), to);
      words.insert(words.end(), list.begin(), list.end());
    }
    return words;
  }

  [[nodiscard]] std::size_t num_experts_here() const {
    std::size_t count = 0;
    for (const RankId rank : topology.ranks(topology.node(self)))
      count += static_cast<std::size_t>(map.num_local(rank));
    return count;
  }

  /// Upper bound on the three parts that read_far_list() reads.
  [[nodiscard]] std::size_t most_far_list_words(RankId source) const {
    const auto max_tokens = static_cast<std::size_t>(options.max_tokens);
    std::size_t words =
        most_relay_words(shares ? shares->at(source, self) : num_experts_here() * max_tokens, agreement.topk);
    if (sends_source_counts(source, self)) words += num_experts_here();
    if (options.layout == Layout::token_unique) words += list_of(source).words().size();
    return words;
  }

  /// An empty list with the size of `source`'s tokens for this rank.
  [[nodiscard]] TokenList list_of(RankId source) const {
    const auto rows = sums->rows_from(source);
    return {sums->tokens_from(source), std::accumulate(rows.begin(), rows.end(), std::size_t{0})};
  }

  void read_far_list(RankId source, std::span<const std::uint32_t> words) {
    InFlow flow = read_relay_list(words, *made, *slot_runs, source);
    if (shares && flow.tokens.size() != shares->at(source, self)) fail_far_list(source);
    if (sends_source_counts(source, self)) {
      if (words.size() < num_experts_here()) fail_far_list(source);
      const auto source_counts = words.first(num_experts_here());
      for (const std::uint32_t count : source_counts)
        if (count > static_cast<std::uint64_t>(options.max_tokens))
          fail_because_of(source,
                          "plan: rank {} sent rank {} a count of {} tokens for one expert, at most {} are allowed",
                          source, self, count, options.max_tokens);
      flow.source_counts.assign(source_counts.begin(), source_counts.end());
      words = words.subspan(source_counts.size());
    }
    if (options.layout == Layout::token_unique) {
      TokenList list = list_of(source);
      if (words.size() != list.words().size()) fail_far_list(source);
      std::copy(words.begin(), words.end(), list.words().begin());
      check_list(list, sums->rows_from(source), agreement.topk, source, self);
      lists[source.index()] = std::move(list);
      words = {};
    }
    if (!words.empty()) fail_far_list(source);
    if (!flow.tokens.empty() || !flow.source_counts.empty()) made->in_flows.push_back(std::move(flow));
  }

  [[noreturn]] void fail_far_list(RankId source) const {
    fail_because_of(source, "plan: rank {} sent rank {} a far list that contradicts its counts", source, self);
  }

  void fill_rows(PlanData& plan) {
    if (options.packed) plan.arrived_counts = std::make_shared<ArrivedCounts>();
    const ExpertRows rows = options.layout == Layout::padded ? padded_rows(map, self, options.max_tokens)
                                                             : expert_rows(*sums, map, self, options.alignment);
    const auto local = [&](const std::vector<std::int64_t>& of_expert) {
      const auto first = of_expert.begin() + map.first_physical(self).value;
      return std::vector<std::int32_t>(first, first + plan.num_local_experts);  // no loss: slots fit 32 bits
    };
    plan.num_expert_rows = rows.rows_of_rank[self.index()];
    plan.expert_offsets = local(rows.offsets);
    plan.expert_offsets.push_back(static_cast<std::int32_t>(plan.num_expert_rows));
    if (!rows.totals.empty()) plan.expert_counts = local(rows.totals);
    if (!wiring.is_one_host()) slot_runs.emplace(*sums, map, topology, options, self, rows);

    if (options.layout == Layout::token_unique) {
      UniqueRows unique = unique_rows(*sums, self);
      plan.rows_of_rank = std::move(unique.rows_of_rank);
      fill_unique_targets(plan, demand, map, unique.first_slot);
    } else {
      plan.rows_of_rank = rows.rows_of_rank;
      fill_expert_targets(plan, demand, routing, map, rows.first_slot);
    }
    if (options.layout != Layout::padded) {
      plan.row_count = {static_cast<std::int32_t>(plan.rows_of_rank[self.index()])};
    } else {
      plan.padded_send_counts.resize(static_cast<std::size_t>(map.num_physical()));
      for (const DemandEntry entry : demand.entries) ++plan.padded_send_counts[entry.expert.index()];
    }
  }
};

Planner::Planner(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self,
                 const PlanOptions& options, const EngineShape& shape, const Wiring& wiring) {
  check_request(routing, map, topology, self, options);
  state_.reset(new State{.routing = routing,
                         .map = map,
                         .topology = topology,
                         .self = self,
                         .options = options,
                         .agreement = make_agreement(shape, routing.topk, options, map, topology),
                         .wiring = wiring,
                         .demand = read_demand(routing, map, topology, self),
                         .num_rounds = rounds_for(options)});
  while (std::ssize(state_->wiring.hosts) < topology.num_ranks()) state_->wiring.add(HostId(0), NicId(0));
  if (needs_round()) state_->propose();
}

Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

std::uint32_t Planner::num_rounds() const { return state_->num_rounds; }
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

std::size_t Planner::bytes_for_far() const { return bytes_without_lists(state_->format()); }

std::uint64_t Planner::agreement_hash() const { return hash_of(state_->agreement); }

std::vector<Planner::FarList> Planner::far_lists() {
  state_->derive_plan();
  std::vector<FarList> lists;
  for (std::size_t rank = 0; rank < state_->wiring.hosts.size(); ++rank)
    if (state_->has_far_list(state_->self, RankId(rank)))
      lists.push_back({RankId(rank), state_->far_list_for(RankId(rank))});
  return lists;
}

std::vector<RankId> Planner::far_list_senders() {
  state_->derive_plan();
  std::vector<RankId> senders;
  for (std::size_t rank = 0; rank < state_->wiring.hosts.size(); ++rank)
    if (state_->has_far_list(RankId(rank), state_->self)) senders.emplace_back(rank);
  return senders;
}

std::size_t Planner::most_far_list_bytes(RankId source) const {
  return state_->most_far_list_words(source) * sizeof(std::uint32_t);
}

void Planner::accept_far_list(RankId source, std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> words(bytes.size() / sizeof(std::uint32_t));
  if (words.size() * sizeof(std::uint32_t) != bytes.size()) state_->fail_far_list(source);
  if (!words.empty()) std::memcpy(words.data(), bytes.data(), bytes.size());
  state_->read_far_list(source, words);
}

std::shared_ptr<PlanData> Planner::finish() {
  state_->derive_plan();
  PlanData& plan = *state_->made;
  if (plan.options.layout == Layout::token_unique) {
    std::vector<TokenList> lists;
    for (auto& list : state_->lists) {
      // A far rank without tokens for this one sends no far list.
      lists.push_back(list ? std::move(*list) : TokenList(0, 0));
    }
    fill_unique_maps(plan, lists);
  }
  return std::move(state_->made);
}

}  // namespace shunt
