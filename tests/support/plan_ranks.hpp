// Plans for all ranks in one thread: each round, every rank's proposal is shown to all.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plan/planner.hpp"
#include "support/random_case.hpp"

namespace shunt::test {

/// Ready for the first round. The planners refer to `all`, which must outlive them.
std::vector<Planner> make_planners(const RandomCase& all, const EngineShape& shape = {.hidden = 16});

/// Every rank's bytes for the coming round, by rank.
std::vector<std::vector<std::byte>> proposals_of(const std::vector<Planner>& planners);

void accept(Planner& planner, const std::vector<std::vector<std::byte>>& proposals);

/// Runs the rounds that are left and finishes.
std::vector<std::shared_ptr<PlanData>> finish_all(std::vector<Planner>& planners);

std::vector<std::shared_ptr<PlanData>> plan_ranks(const RandomCase& all, const EngineShape& shape = {.hidden = 16});

}  // namespace shunt::test
