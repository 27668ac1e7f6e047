#include "engine/host_driven_engine.hpp"

#include "core/fail.hpp"
#include "core/hash.hpp"
#include "core/narrow_routing.hpp"
#include "engine/exchange.hpp"
#include "engine/pending_operation.hpp"
#include "plan/planner.hpp"

namespace shunt {
namespace {

/// Exchanges the far lists: what forwarders and receivers on other nodes can't derive from counts.
void swap_far_lists(const ExchangePlace& place, Planner& planner) {
  std::vector<FarBytes> lists;
  for (const Planner::FarList& list : planner.far_lists()) {
    const auto bytes = std::as_bytes(std::span(list.words));
    lists.push_back({list.rank, {bytes.begin(), bytes.end()}});
  }
  std::vector<FarSender> senders;
  for (const RankId rank : planner.far_list_senders()) senders.push_back({rank, planner.most_far_list_bytes(rank)});
  const auto received = swap_far(place, OpKind::plan, planner.agreement_hash(), std::move(lists), senders);
  for (const FarBytes& list : received) {
    try {
      planner.accept_far_list(list.rank, list.bytes);
    } catch (const Error& error) {
      place.comm.report_and_throw({place.group->member(list.rank), error.what()});
    }
  }
}

void accept(Planner& planner, std::span<const std::span<const std::byte>> proposals, const Group& group) {
  try {
    planner.accept(proposals);
  } catch (const PeerError& error) {
    throw PeerError(group.member(error.culprit()), error.what());
  }
}

EngineShape shape_of(const EngineOptions& options) {
  return {.hidden = options.hidden,
          .dtype = options.dtype,
          .expert_dtype = *options.expert_dtype,
          .result_dtype = *options.result_dtype,
          .wire_dtype = *options.wire_dtype,
          .flat = options.reduction == Reduction::flat,
          .ids = options.companions.ids,
          .weights = options.companions.weights};
}

}  // namespace

std::shared_ptr<PlanData> HostDrivenEngine::make_plan(const Routing& routing, const ExpertMap& map,
                                                      const PlanOptions& plan_options) {
  const NarrowRouting narrow(routing, {"plan", rank()});
  const ExchangePlace place{*world->comm,   world->group,      world->topology, key,
                            next_sequence_, *options.deadline, options.name};
  Planner planner(narrow.get(), map, world->topology, rank(), plan_options, shape_of(options), world->group->wiring);
  while (planner.needs_round())
    exchange(place, OpKind::plan, planner.proposal(), {planner.bytes_for_far()},
             [&](std::span<const std::span<const std::byte>> all) { accept(planner, all, *world->group); });
  if (world->group->has_far()) swap_far_lists(place, planner);
  std::shared_ptr<PlanData> data = planner.finish();
  data->engine = serial;
  // Different plans of an engine may have equal counts.
  data->hash = Hasher().add(data->hash, num_plans_++).value();
  if (const TraceTarget& trace = options.trace; trace.recorder)
    trace.recorder->record(trace.layer, narrow.get(), rank());
  return data;
}

std::shared_ptr<Pending> HostDrivenEngine::issue(const std::shared_ptr<Operation>& operation) {
  auto pending = std::make_shared<PendingOperation>(world->comm, operation);
  world->comm->progress().issue(operation, next_sequence_);
  return pending;
}

}  // namespace shunt
