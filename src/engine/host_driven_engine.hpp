// The base of engines whose operations are driven by the host: on host memory, and on devices of several nodes.
#pragma once

#include <memory>

#include "engine/engine_impl.hpp"
#include "engine/shuffle.hpp"

namespace shunt {

class PlanRun;

struct HostDrivenEngine : Engine::Impl {
  using Impl::Impl;

  /// Collective: exchanges counts with all ranks. The routing is in host memory.
  [[nodiscard]] std::shared_ptr<PlanData> make_plan(const Routing& routing, const ExpertMap& map,
                                                    const PlanOptions& plan_options);

  /// The same, not yet started. With keeps_map, the map need not outlive the call.
  [[nodiscard]] std::shared_ptr<PlanRun> new_plan(const Routing& routing, const ExpertMap& map,
                                                  const PlanOptions& plan_options, bool keeps_map);

  template <class Op>
  [[nodiscard]] std::shared_ptr<Pending> issue(const Plan& plan, const Announcement& announcement,
                                               typename Op::Inputs inputs) {
    const Shuffle::Context context{world->comm->transport(), world->group, key,
                                   *options.deadline,        plan.data(),  options.name};
    return issue(std::make_shared<Op>(context, announcement, std::move(inputs)));
  }

 private:
  std::shared_ptr<Pending> issue(const std::shared_ptr<Operation>& operation);

  std::uint32_t next_sequence_ = 0;
  std::uint32_t num_plans_ = 0;
};

}  // namespace shunt
