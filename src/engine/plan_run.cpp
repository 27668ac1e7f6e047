#include "engine/plan_run.hpp"

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

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

PlanRun::PlanRun(const Engine::Impl& engine, std::uint32_t first_sequence, std::uint32_t number, const Routing& routing,
                 const ExpertMap& map, const PlanOptions& plan_options, bool keeps_map)
    : world_(engine.world),
      options_(engine.options),
      key_(engine.key),
      serial_(engine.serial),
      next_sequence_(first_sequence),
      number_(number),
      routing_(routing, {"plan", engine.rank()}),
      kept_map_(keeps_map ? std::optional(map) : std::nullopt),
      planner_(routing_.get(), keeps_map ? *kept_map_ : map, world_->topology, engine.rank(), plan_options,
               shape_of(options_), world_->group->wiring),
      chain_(*world_->comm) {}

std::uint32_t PlanRun::num_operations() const {
  const Group& group = *world_->group;
  return planner_.num_rounds() * num_operations_of_exchange(group) + (group.has_far() ? 1 : 0);
}

void PlanRun::wait() {
  name_errors(options_.name, [&] { chain_.wait(); });
}

/// Runs a part that must not throw, because a thread that drives calls it.
template <class Part>
void PlanRun::guarded(const Part& part) {
  try {
    part();
  } catch (...) {
    chain_.end(std::current_exception());
  }
}

ExchangePlace PlanRun::place() {
  return {*world_->comm, world_->group, world_->topology, key_, next_sequence_, *options_.deadline, options_.name};
}

void PlanRun::proceed() {
  guarded([&] {
    if (planner_.needs_round()) {
      const auto self = shared_from_this();
      start_exchange(
          place(), chain_, OpKind::plan, planner_.proposal(), {planner_.bytes_for_far()},
          [self](std::span<const std::span<const std::byte>> all) { self->accept(all); }, [self] { self->proceed(); });
    } else if (world_->group->has_far()) {
      swap_far_lists();
    } else {
      complete();
    }
  });
}

void PlanRun::accept(std::span<const std::span<const std::byte>> proposals) {
  try {
    planner_.accept(proposals);
  } catch (const PeerError& error) {
    throw PeerError(world_->group->member(error.culprit()), error.what());
  }
}

// What forwarders and receivers on other nodes can't derive from counts.
void PlanRun::swap_far_lists() {
  std::vector<FarBytes> lists;
  for (const Planner::FarList& list : planner_.far_lists()) {
    const auto bytes = std::as_bytes(std::span(list.words));
    lists.push_back({list.rank, {bytes.begin(), bytes.end()}});
  }
  std::vector<FarSender> senders;
  for (const RankId rank : planner_.far_list_senders()) senders.push_back({rank, planner_.most_far_list_bytes(rank)});
  start_far_swap(place(), chain_, OpKind::plan, planner_.agreement_hash(), std::move(lists), senders,
                 [self = shared_from_this()](const std::vector<FarBytes>& received) {
                   self->guarded([&] {
                     for (const FarBytes& list : received) self->accept_far_list(list);
                     self->complete();
                   });
                 });
}

void PlanRun::accept_far_list(const FarBytes& list) {
  try {
    planner_.accept_far_list(list.rank, list.bytes);
  } catch (const Error& error) {
    world_->comm->report_and_throw({world_->group->member(list.rank), error.what()});
  }
}

void PlanRun::complete() {
  *plan_ = std::move(*planner_.finish());
  plan_->engine = serial_;
  // Different plans of an engine may have equal counts.
  plan_->hash = Hasher().add(plan_->hash, number_).value();
  if (const TraceTarget& trace = options_.trace; trace.recorder)
    trace.recorder->record(trace.layer, routing_.get(), world_->group->self);
  chain_.end();
}

}  // namespace shunt
