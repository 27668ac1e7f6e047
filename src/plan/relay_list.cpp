#include "plan/relay_list.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/fail.hpp"
#include "plan/slots.hpp"

namespace shunt {
namespace {

constexpr std::size_t kWordsPerTarget = 3;

[[noreturn]] void fail_list(RankId source, RankId self, const char* cause) {
  fail_because_of(source, "plan: rank {} sent rank {} a relay list that {}", source, self, cause);
}

std::span<const std::uint32_t> take(std::span<const std::uint32_t>& words, std::uint64_t count, RankId source,
                                    RankId self) {
  if (count > words.size()) fail_list(source, self, "ends early");
  const auto taken = words.first(count);
  words = words.subspan(count);
  return taken;
}

}  // namespace

void write_relay_list(std::vector<std::uint32_t>& words, const PlanData& plan, const OutFlow& flow) {
  const NodeId node = plan.topology.node(flow.forwarder);
  const std::size_t sizes = words.size();
  words.insert(words.end(), {static_cast<std::uint32_t>(flow.tokens.size()), 0});
  words.insert(words.end(), flow.tokens.begin(), flow.tokens.end());
  const std::size_t counts = words.size();
  words.resize(counts + flow.tokens.size());
  for (std::size_t i = 0; i < flow.tokens.size(); ++i)
    for (const Target& target : plan.targets_of(flow.tokens[i])) {
      if (plan.topology.node(target.rank) != node) continue;
      ++words[counts + i];
      ++words[sizes + 1];
      words.insert(words.end(),
                   {static_cast<std::uint32_t>(target.rank.value), static_cast<std::uint32_t>(target.slot.value),
                    std::bit_cast<std::uint32_t>(target.weight)});
    }
}

std::size_t most_relay_words(std::size_t num_tokens, std::uint64_t topk) {
  return 2 + num_tokens * (2 + topk * kWordsPerTarget);
}

SlotRuns::SlotRuns(const GlobalCounts& counts, const ExpertMap& map, const PlanOptions& options, RankId source)
    : runs_(static_cast<std::size_t>(map.num_ranks())) {
  const auto num_ranks = static_cast<std::size_t>(map.num_ranks());
  if (options.layout == Layout::token_unique) {
    const UniqueRows rows = unique_rows(counts, source);
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
      runs_[rank] = {{rows.first_slot[rank],
                      rows.first_slot[rank] + std::int64_t{counts.tokens_per_rank[source.index() * num_ranks + rank]}}};
    return;
  }
  const bool padded = options.layout == Layout::padded;
  const ExpertRows rows =
      padded ? padded_rows(map, source, options.max_tokens) : expert_rows(counts, map, source, options.alignment);
  for (std::size_t expert = 0; expert < rows.first_slot.size(); ++expert) {
    const std::int64_t count =
        padded ? options.max_tokens
               : std::int64_t{counts.rows[source.index() * static_cast<std::size_t>(counts.num_physical) + expert]};
    runs_[map.rank(PhysicalId(expert)).index()].push_back({rows.first_slot[expert], rows.first_slot[expert] + count});
  }
}

bool SlotRuns::contains(RankId rank, std::int64_t slot) const {
  const auto& runs = runs_[rank.index()];
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), slot, [](std::int64_t s, const Run& run) { return s < run.begin; });
  return after != runs.begin() && slot < std::prev(after)->end;
}

InFlow read_relay_list(std::span<const std::uint32_t>& words, const PlanData& plan, const SlotRuns& runs,
                       RankId source) {
  const RankId self = plan.self;
  const auto sizes = take(words, 2, source, self);
  const auto tokens = take(words, sizes[0], source, self);
  const auto counts = take(words, sizes[0], source, self);
  const auto targets = take(words, std::uint64_t{sizes[1]} * kWordsPerTarget, source, self);
  if (std::adjacent_find(tokens.begin(), tokens.end(), std::greater_equal<>()) != tokens.end())
    fail_list(source, self, "is out of order");

  InFlow flow;
  flow.source = source;
  flow.tokens.assign(tokens.begin(), tokens.end());
  flow.first_target.push_back(0);
  for (const std::uint32_t count : counts) {
    if (count < 1 || count > static_cast<std::uint32_t>(plan.topk) || count > sizes[1] - flow.first_target.back())
      fail_list(source, self, "has a token of impossible length");
    flow.first_target.push_back(flow.first_target.back() + count);
  }
  if (flow.first_target.back() != sizes[1]) fail_list(source, self, "has rows of no token");

  for (std::size_t word = 0; word < targets.size(); word += kWordsPerTarget) {
    const auto rank = static_cast<std::int32_t>(targets[word]);
    const auto slot = static_cast<std::int32_t>(targets[word + 1]);
    const auto weight = std::bit_cast<float>(targets[word + 2]);
    if (rank < 0 || rank >= plan.topology.num_ranks() || plan.topology.node(RankId(rank)) != plan.topology.node(self))
      fail_list(source, self, "names a rank of another node");
    if (!runs.contains(RankId(rank), slot)) fail_list(source, self, "names a slot that is not the source's");
    if (!std::isfinite(weight)) fail_list(source, self, "has a weight that isn't finite");
    flow.targets.push_back({.rank = RankId(rank), .slot = Slot(slot), .choice = -1, .weight = weight});
  }
  return flow;
}

}  // namespace shunt
