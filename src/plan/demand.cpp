#include "plan/demand.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/fail.hpp"
#include "plan/batch_copies.hpp"

namespace shunt {
namespace {

std::vector<RankId> ranks_by_node(const Topology& topology) {
  std::vector<RankId> ranks;
  for (std::int32_t rank = 0; rank < topology.num_ranks(); ++rank) ranks.emplace_back(rank);
  std::stable_sort(ranks.begin(), ranks.end(), [&](RankId a, RankId b) { return topology.node(a) < topology.node(b); });
  return ranks;
}

// Four lanes, because every 64-bit machine compares four at once. Without the explicit type, the compiler vectorises
// the other loop and spends its time on sums across lanes; with wider vectors, it falls back to scalars.
using Lanes [[gnu::vector_size(16)]] = std::int32_t;
constexpr std::size_t kBlock = kSortSlack;
static_assert(kBlock * sizeof(std::int32_t) == 2 * sizeof(Lanes));

// A key's position is the number of keys below it. Counting takes count² comparisons but has no branch to mispredict:
// on 8 random keys it is three times as fast as insertion sort or std::sort.
void sort_token(const std::int32_t* keys, std::size_t count, const TreeOrder& order, DemandEntry* sorted) {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    Lanes block[2];
    std::memcpy(block, keys + begin, sizeof(block));
    Lanes below[2]{};
    for (std::size_t other = 0; other < count; ++other) {
      below[0] -= keys[other] < block[0];
      below[1] -= keys[other] < block[1];
    }
    std::array<std::int32_t, kBlock> place;
    std::memcpy(place.data(), below, sizeof(below));
    const std::size_t used = std::min(kBlock, count - begin);
    for (std::size_t i = 0; i < used; ++i) sorted[place[i]] = order.entry(keys[begin + i]);
  }
}

}  // namespace

TreeOrder::TreeOrder(const ExpertMap& map, const Topology& topology)
    : key_(static_cast<std::size_t>(map.num_physical())) {
  expert_.reserve(key_.size());
  for (const RankId rank : ranks_by_node(topology)) {
    const std::size_t first = map.first_physical(rank).index();
    const auto count = static_cast<std::size_t>(map.num_local(rank));
    for (std::size_t expert = first; expert < first + count; ++expert) {
      key_[expert] = static_cast<std::int32_t>(expert_.size() << kChoiceBits);
      expert_.emplace_back(expert);
    }
  }
}

std::vector<DemandEntry> sort_in_tree_order(std::span<const std::int32_t> keys,
                                            std::span<const std::uint32_t> first_entry, const TreeOrder& order) {
  std::vector<DemandEntry> sorted(first_entry.back());
  for (std::size_t token = 0; token + 1 < first_entry.size(); ++token) {
    const std::size_t begin = first_entry[token];
    sort_token(&keys[begin], first_entry[token + 1] - begin, order, sorted.data() + begin);
  }
  return sorted;
}

namespace {

/// No early exit, so that it vectorises.
bool all_finite(std::span<const float> values) {
  bool all = true;
  for (const float value : values) all &= std::isfinite(value);
  return all;
}

template <class Copies>
class Reader {
 public:
  Reader(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self, Copies copies)
      : routing_(routing),
        num_experts_(map.num_experts()),
        self_(self),
        order_(map, topology),
        copies_(std::move(copies)),
        keys_(routing.experts.size() + kSortSlack) {
    experts_.reserve(static_cast<std::size_t>(num_experts_));
    for (std::int32_t id = 0; id < num_experts_; ++id) {
      const auto all = map.copies(ExpertId(id));
      experts_.push_back({copies_.expert(id), kNoToken, all.size() == 1 ? order_.key(all.front()) : 0});
    }
  }

  Demand read() {
    std::vector<std::uint32_t> first_entry(routing_.num_tokens() + 1);
    const auto set_key = [&](std::uint32_t entry, PhysicalId copy) { keys_[entry] |= order_.key(copy); };
    // Local copies: stores through `keys` could alias members, which would then be reloaded for each entry.
    const std::int32_t* ids = routing_.experts.narrow().data();
    const auto topk = static_cast<std::size_t>(routing_.topk);
    const bool weights_are_finite = all_finite(routing_.weights);
    const auto num_experts = static_cast<std::uint32_t>(num_experts_);
    Expert* const experts = experts_.data();
    std::int32_t* const keys = keys_.data();
    std::uint32_t end = 0;
    auto batch = copies_.new_batch(end);
    for (std::size_t token = 0; token < routing_.num_tokens(); ++token, ids += topk) {
      batch.begin_token();
      for (std::size_t choice = 0; choice < topk; ++choice) {
        const std::int32_t id = ids[choice];
        if (id == -1) continue;
        if (static_cast<std::uint32_t>(id) >= num_experts) fail_range(token, id);
        Expert& expert = experts[id];
        if (expert.last_token == token) fail_repeat(token, id);
        expert.last_token = static_cast<std::uint32_t>(token);
        if (!weights_are_finite) check_weight(token, choice);
        batch.add(expert, id, end);
        keys[end++] = expert.key | static_cast<std::int32_t>(choice);
      }
      batch.end_token();
      first_entry[token + 1] = end;
      if (!batch.is_full()) continue;
      copies_.choose(set_key);
      batch = copies_.new_batch(end);
    }
    copies_.choose(set_key);
    auto entries = sort_in_tree_order(keys_, first_entry, order_);
    return {std::move(first_entry), std::move(entries)};
  }

 private:
  static constexpr std::uint32_t kNoToken = 0xffff'ffffu;

  struct Expert : Copies::Expert {
    std::uint32_t last_token;  // detects repeats without comparing a token's experts with each other
    std::int32_t key;          // key of the only copy; 0 if there are several, until one is chosen
  };

  void check_weight(std::size_t token, std::size_t choice) const {
    const std::size_t place = token * static_cast<std::size_t>(routing_.topk) + choice;
    if (!std::isfinite(routing_.weight(place)))
      fail_weight(token, routing_.experts.narrow()[place], routing_.weight(place));
  }

  [[noreturn]] void fail_range(std::size_t token, std::int32_t id) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: expert {} is out of range, expected -1 to {}", self_,
         token, id, num_experts_ - 1);
  }
  [[noreturn]] void fail_repeat(std::size_t token, std::int32_t id) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: expert {} is named twice", self_, token, id);
  }
  [[noreturn]] void fail_weight(std::size_t token, std::int32_t id, float weight) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: the weight of expert {} is {}, expected a finite one",
         self_, token, id, weight);
  }

  const Routing& routing_;
  const std::int32_t num_experts_;
  RankId self_;
  TreeOrder order_;
  Copies copies_;
  std::vector<Expert> experts_;     // by logical expert
  std::vector<std::int32_t> keys_;  // by entry
};

}  // namespace

Demand read_demand(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self) {
  const auto read_with = [&](auto copies) {
    return Reader<decltype(copies)>(routing, map, topology, self, std::move(copies)).read();
  };
  if (!map.has_replicas()) return read_with(NoCopies());
  if (map.num_ranks() <= NeededBits::kMaxRanks)
    return read_with(BatchCopies<NeededBits>(map, topology, self, routing.topk));
  return read_with(BatchCopies<NeededList>(map, topology, self, routing.topk));
}

std::int64_t keep_first_rows(Demand& demand, std::span<const std::uint32_t> kept) {
  std::vector<std::uint32_t> left(kept.begin(), kept.end());
  std::size_t end = 0;
  for (std::size_t token = 0; token < demand.num_tokens(); ++token) {
    const auto entries = demand.entries_of(token);
    demand.first_entry[token] = static_cast<std::uint32_t>(end);
    for (const DemandEntry entry : entries) {
      auto& remaining = left[entry.expert.index()];
      if (remaining == 0) continue;
      --remaining;
      demand.entries[end++] = entry;
    }
  }
  const auto dropped = static_cast<std::int64_t>(demand.entries.size() - end);
  demand.first_entry.back() = static_cast<std::uint32_t>(end);
  demand.entries.resize(end);
  return dropped;
}

}  // namespace shunt
