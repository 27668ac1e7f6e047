#include "engine/host_driven_engine.hpp"

#include "engine/pending_operation.hpp"
#include "engine/plan_run.hpp"

namespace shunt {

std::shared_ptr<PlanRun> HostDrivenEngine::new_plan(const Routing& routing, const ExpertMap& map,
                                                    const PlanOptions& plan_options, bool keeps_map) {
  auto run = std::make_shared<PlanRun>(*this, next_sequence_, num_plans_, routing, map, plan_options, keeps_map);
  next_sequence_ += run->num_operations();
  ++num_plans_;
  return run;
}

std::shared_ptr<PlanData> HostDrivenEngine::make_plan(const Routing& routing, const ExpertMap& map,
                                                      const PlanOptions& plan_options) {
  const auto run = new_plan(routing, map, plan_options, false);
  run->run();
  return run->plan();
}

std::shared_ptr<Pending> HostDrivenEngine::issue(const std::shared_ptr<Operation>& operation) {
  auto pending = std::make_shared<PendingOperation>(world->comm, operation);
  world->comm->progress().issue(operation, next_sequence_);
  return pending;
}

}  // namespace shunt
