#include "plan/request.hpp"

#include <algorithm>
#include <limits>

#include "core/fail.hpp"
#include "plan/demand.hpp"

namespace shunt {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();

void check_padded(const Routing& routing, const ExpertMap& map, RankId self, const PlanOptions& options) {
  if (options.capacity != PlanOptions::kUnlimited)
    fail(ErrorCode::invalid_argument,
         "plan: rank {}: capacity {} with layout padded, which exchanges no counts to enforce it", self,
         options.capacity);
  const auto tokens = static_cast<std::int64_t>(routing.num_tokens());
  if (options.max_tokens < 1 || options.max_tokens < tokens)
    fail(ErrorCode::invalid_argument, "plan: rank {}: max_tokens is {}, expected at least {}", self, options.max_tokens,
         std::max<std::int64_t>(tokens, 1));
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank) {
    const std::int64_t runs = std::int64_t{map.num_local(RankId(rank))} * map.num_ranks();
    if (runs > 0 && options.max_tokens > kMostRows / runs)
      fail(ErrorCode::invalid_argument, "plan: rank {}: max_tokens {} gives rank {} more than {} rows", self,
           options.max_tokens, rank, kMostRows);
  }
  if (options.max_tokens * map.num_ranks() % options.alignment != 0)
    fail(ErrorCode::invalid_argument,
         "plan: rank {}: an expert's block of {} ranks x max_tokens {} is no multiple of alignment {}", self,
         map.num_ranks(), options.max_tokens, options.alignment);
}

}  // namespace

void check_routing(const Routing& routing, const Caller& caller) {
  if (routing.topk < 1 || routing.topk > Routing::kMaxTopK)
    fail(ErrorCode::invalid_argument, "{}: topk is {}, expected 1 to {}", caller.text(), routing.topk,
         Routing::kMaxTopK);
  if (routing.experts.size() % static_cast<std::size_t>(routing.topk) != 0)
    fail(ErrorCode::invalid_argument, "{}: the routing has {} experts, not a multiple of topk {}", caller.text(),
         routing.experts.size(), routing.topk);
  if (!routing.weights.empty() && routing.weights.size() != routing.experts.size())
    fail(ErrorCode::invalid_argument, "{}: the routing has {} weights for {} experts", caller.text(),
         routing.weights.size(), routing.experts.size());
  if (routing.experts.size() > static_cast<std::size_t>(kMostRows))
    fail(ErrorCode::invalid_argument, "{}: the routing has {} experts, expected at most {}", caller.text(),
         routing.experts.size(), kMostRows);
}

void check_request(const Routing& routing, const ExpertMap& map, const Topology& topology, RankId self,
                   const PlanOptions& options) {
  SHUNT_CHECK(self.valid() && self.value < topology.num_ranks());
  if (map.num_ranks() != topology.num_ranks())
    fail(ErrorCode::invalid_argument, "plan: rank {}: the expert map is for {} ranks, the topology for {}", self,
         map.num_ranks(), topology.num_ranks());
  if (map.num_physical() > TreeOrder::kMaxPhysical)
    fail(ErrorCode::invalid_argument, "plan: rank {}: the expert map has {} copies of experts, expected at most {}",
         self, map.num_physical(), TreeOrder::kMaxPhysical);
  check_routing(routing, {"plan", self});
  if (options.layout > Layout::padded)
    fail(ErrorCode::invalid_argument,
         "plan: rank {}: layout {} does not exist, expected expert_major, token_unique or padded", self,
         static_cast<int>(options.layout));
  if (options.forwarders > Forwarders::rotated)
    fail(ErrorCode::invalid_argument, "plan: rank {}: forwarders {} do not exist, expected balanced or rotated", self,
         static_cast<int>(options.forwarders));
  if (options.alignment < 1)
    fail(ErrorCode::invalid_argument, "plan: rank {}: alignment is {}, expected at least 1", self, options.alignment);
  if (options.capacity < 1)
    fail(ErrorCode::invalid_argument, "plan: rank {}: capacity is {}, expected at least 1", self, options.capacity);
  if (options.max_tokens < 0)
    fail(ErrorCode::invalid_argument, "plan: rank {}: max_tokens is {}, expected 0 or more", self, options.max_tokens);
  if (options.packed && options.layout != Layout::padded)
    fail(ErrorCode::invalid_argument, "plan: rank {}: packed is for layout padded, not for {}", self,
         to_string(options.layout));
  if (options.layout == Layout::padded) check_padded(routing, map, self, options);
}

}  // namespace shunt
