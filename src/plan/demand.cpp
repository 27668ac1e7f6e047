#include "plan/demand.hpp"

#include <cmath>
#include <utility>

#include "core/fail.hpp"
#include "plan/tree_order.hpp"

namespace shunt {
namespace {

class Reader {
 public:
  Reader(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self)
      : routing_(routing), map_(map), self_(self), order_(map, topology) {
    for (std::int32_t expert = 0; expert < map.num_experts(); ++expert) {
      const auto copies = map.copies(ExpertId(expert));
      experts_.push_back({kNoToken, copies.size() == 1 ? order_.key(copies.front()) : kSeveralCopies});
    }
  }

  Demand read() {
    std::vector<std::int32_t> keys(routing_.experts.size() + kSortSlack);
    std::vector<std::uint32_t> first_entry(routing_.num_tokens() + 1);
    std::int32_t* end = keys.data();
    for (std::size_t token = 0; token < routing_.num_tokens(); ++token) {
      end = read_token(token, end);
      first_entry[token + 1] = static_cast<std::uint32_t>(end - keys.data());
    }
    auto entries = sort_in_tree_order(keys, first_entry, order_);
    return {std::move(first_entry), std::move(entries)};
  }

 private:
  static constexpr std::uint32_t kNoToken = 0xffff'ffffu;
  static constexpr std::int32_t kSeveralCopies = -1;

  struct Expert {
    std::uint32_t last_token;  // finds repeats without comparing a token's experts with each other
    std::int32_t key;          // of the only copy, or kSeveralCopies
  };

  std::int32_t* read_token(std::size_t token, std::int32_t* out) {
    const auto topk = static_cast<std::size_t>(routing_.topk);
    for (std::size_t choice = 0; choice < topk; ++choice) {
      const std::int32_t id = routing_.experts[token * topk + choice];
      if (id == -1) continue;
      if (id < 0 || id >= map_.num_experts()) fail_range(token, id);
      Expert& expert = experts_[static_cast<std::size_t>(id)];
      if (expert.last_token == token) fail_repeat(token, id);
      expert.last_token = static_cast<std::uint32_t>(token);
      const float weight = routing_.weight(token * topk + choice);
      if (!std::isfinite(weight)) fail_weight(token, id, weight);
      const std::int32_t key =
          expert.key != kSeveralCopies ? expert.key : order_.key(map_.choose(ExpertId(id), self_, TokenId(token)));
      *out++ = key | static_cast<std::int32_t>(choice);
    }
    return out;
  }

  [[noreturn]] void fail_range(std::size_t token, std::int32_t id) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: expert {} is out of range, expected -1 to {}", self_,
         token, id, map_.num_experts() - 1);
  }
  [[noreturn]] void fail_repeat(std::size_t token, std::int32_t id) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: expert {} is named twice", self_, token, id);
  }
  [[noreturn]] void fail_weight(std::size_t token, std::int32_t id, float weight) const {
    fail(ErrorCode::invalid_argument, "plan: rank {}, token {}: the weight of expert {} is {}, expected a finite one",
         self_, token, id, weight);
  }

  const Routing& routing_;
  const ExpertMap& map_;
  RankId self_;
  TreeOrder order_;
  std::vector<Expert> experts_;  // by logical expert
};

}  // namespace

Demand read_demand(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self) {
  return Reader(routing, map, topology, self).read();
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
