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

SlotRuns::SlotRuns(const CountSums& sums, const ExpertMap& map, const Topology& topology, const PlanOptions& options,
                   RankId self, const ExpertRows& rows)
    : ranks_(topology.ranks(topology.node(self))), first_{0} {
  const CountSums::NodeCounts& counts = sums.node_counts();
  std::vector<std::int64_t> offsets;  // start of each run, without the sources' shares
  for (const RankId rank : ranks_) {
    const auto expert = rows.offsets.begin() + map.first_physical(rank).value;
    if (options.layout == Layout::token_unique)
      offsets.push_back(0);
    else
      offsets.insert(offsets.end(), expert, expert + map.num_local(rank));
    first_.push_back(offsets.size());
  }
  const auto num_sources = static_cast<std::size_t>(topology.num_ranks());
  for (std::size_t i = 0; i < num_sources * offsets.size(); ++i) {
    const std::int64_t offset = offsets[i % offsets.size()];
    const auto source = static_cast<std::int64_t>(i / offsets.size());
    if (options.layout == Layout::padded)
      runs_.push_back({offset + source * options.max_tokens, offset + (source + 1) * options.max_tokens});
    else if (options.layout == Layout::token_unique)
      runs_.push_back({counts.tokens_before[i], counts.tokens_before[i] + counts.tokens[i]});
    else
      runs_.push_back({offset + counts.rows_before[i], offset + counts.rows_before[i] + counts.rows[i]});
  }
}

bool SlotRuns::contains(RankId source, RankId rank, std::int64_t slot) const {
  const auto at = static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  const Run* run = runs_.data() + source.index() * first_.back() + first_[at];
  std::size_t count = first_[at + 1] - first_[at];
  if (count == 0) return false;
  // Slots are in random order, so a search that branches would be mispredicted at each step: it was 40 % of a plan
  // between two machines (docs/performance.md).
  for (; count > 1; count -= count / 2) run += run[count / 2].begin <= slot ? count / 2 : 0;
  return run->begin <= slot && slot < run->end;
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
    if (!runs.contains(source, RankId(rank), slot)) fail_list(source, self, "names a slot that is not the source's");
    if (!std::isfinite(weight)) fail_list(source, self, "has a weight that isn't finite");
    flow.targets.push_back(
        {.rank = RankId(rank), .slot = Slot(slot), .choice = -1, .closes = Closes::nothing, .weight = weight});
  }
  for (std::size_t i = 0; i < flow.tokens.size(); ++i)
    close_in_node(std::span(flow.targets).subspan(flow.first_target[i], counts[i]));
  return flow;
}

}  // namespace shunt
