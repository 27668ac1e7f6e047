#include "support/plan_ranks.hpp"

#include <span>

namespace shunt::test {

std::vector<Planner> make_planners(const RandomCase& all, const EngineShape& shape) {
  std::vector<Planner> planners;
  for (std::size_t rank = 0; rank < all.ranks.size(); ++rank)
    planners.emplace_back(all.routing(RankId(rank)), all.map, all.topology, RankId(rank), all.options, shape);
  return planners;
}

std::vector<std::vector<std::byte>> proposals_of(const std::vector<Planner>& planners) {
  std::vector<std::vector<std::byte>> proposals;
  for (const Planner& planner : planners) {
    const auto bytes = planner.proposal();
    proposals.emplace_back(bytes.begin(), bytes.end());
  }
  return proposals;
}

void accept(Planner& planner, const std::vector<std::vector<std::byte>>& proposals) {
  const std::vector<std::span<const std::byte>> views(proposals.begin(), proposals.end());
  planner.accept(views);
}

std::vector<std::shared_ptr<PlanData>> finish_all(std::vector<Planner>& planners) {
  while (planners.front().needs_round()) {
    const auto proposals = proposals_of(planners);
    for (Planner& planner : planners) accept(planner, proposals);
  }
  std::vector<std::shared_ptr<PlanData>> plans;
  for (Planner& planner : planners) plans.push_back(planner.finish());
  return plans;
}

std::vector<std::shared_ptr<PlanData>> plan_ranks(const RandomCase& all, const EngineShape& shape) {
  auto planners = make_planners(all, shape);
  return finish_all(planners);
}

}  // namespace shunt::test
