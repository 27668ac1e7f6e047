// Plans on the device: how they are made, and what they tell.
#include "shunt/device_plan.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/count_exchange.hpp"
#include "engine/cuda/engine_impl.hpp"
#include "plan/cuda/choose.hpp"
#include "plan/cuda/clamp.hpp"
#include "plan/cuda/count.hpp"
#include "plan/cuda/place.hpp"
#include "plan/cuda/tile_memory.hpp"
#include "shunt/routing.hpp"
#include "transport/cuda/meeting.hpp"

namespace shunt {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();

/// Of whoever asks for a plan.
auto demands(const DeviceEngine::Impl& engine) {
  return [self = engine.self](bool holds, const std::string& what) {
    if (!holds) fail(ErrorCode::invalid_argument, "rank {}: plan: {}", self, what);
  };
}

/// All that can be wrong with a request for a plan but its routing and its rows.
void check_request(const DeviceRouting& routing, const ExpertMap& map, const DevicePlanOptions& options,
                   const DeviceEngine::Impl& engine) {
  const std::int32_t num_ranks = engine.heap->num_ranks;
  const auto demand = demands(engine);
  demand(map.num_ranks() == num_ranks,
         fmt::format("the map is for {} ranks, there are {}", map.num_ranks(), num_ranks));
  demand(map.num_physical() <= engine.options.max_experts,
         fmt::format("the map has {} physical experts, max_experts is {}", map.num_physical(),
                     engine.options.max_experts));
  demand(routing.topk >= 1 && routing.topk <= Routing::kMaxTopK,
         fmt::format("topk is {}, expected 1 to {}", routing.topk, Routing::kMaxTopK));
  demand(routing.num_tokens >= 0 && routing.num_tokens <= engine.options.max_tokens,
         fmt::format("{} tokens, max_tokens is {}", routing.num_tokens, engine.options.max_tokens));
  demand(routing.num_tokens == 0 || routing.experts, "the routing names no experts");
  demand(options.alignment >= 1, fmt::format("alignment is {}, expected at least 1", options.alignment));
  demand(options.capacity >= 0, fmt::format("capacity is {}, expected at least 0", options.capacity));
  demand(options.max_rows >= 0 && options.max_rows <= kMostRows,
         fmt::format("max_rows is {}, expected 0 to {}", options.max_rows, kMostRows));
  demand(options.layout != Layout::padded, "padded is not made by plan; use DeviceDecoder");
  const bool unique = options.layout == Layout::token_unique;
  demand(!unique || engine.options.reduction == Reduction::tree, "token_unique sums per rank; flat needs expert_major");
  demand(!unique || options.overflow == Overflow::fault, "dropping rows needs expert_major");
  if (device::tile_bytes(map.num_physical() + num_ranks, routing.topk) > engine.heap->most_tile_bytes)
    fail(ErrorCode::unsupported,
         "rank {}: plan: {} physical experts with topk {} are more than a device's shared memory holds", engine.self,
         map.num_physical(), routing.topk);
}

/// Rows for dispatch that come with the request.
void check_rows(const DevicePlanOptions& options, const DeviceEngine::Impl& engine) {
  const Tensor& rows = options.rows;
  const Tensor& scales = options.row_scales;
  const auto demand = demands(engine);
  if (!is_given(rows)) return demand(!is_given(scales), "row_scales without rows");
  demand(options.max_rows > 0, "rows need max_rows");
  engine.check_tensor("plan", "rows", rows, engine.options.dtype, options.max_rows);
  demand(engine.is_symmetric(rows), "rows did not come from DeviceHeap::allocate");
  demand(is_given(scales) == engine.has_scales(), "row_scales come with fp8 rows, and only with them");
  if (!engine.has_scales()) return;
  engine.checks().tensor("plan", "row_scales", scales, f32, options.max_rows, engine.num_scales());
  demand(engine.is_symmetric(scales), "row_scales did not come from DeviceHeap::allocate");
}

device::PlanShape shape_of(const DeviceRouting& routing, const ExpertMap& map, const DevicePlanOptions& options,
                           std::int64_t max_tokens, RankId self) {
  std::int64_t most_local = 0;
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank)
    most_local = std::max<std::int64_t>(most_local, map.num_local(RankId(rank)));
  const std::int64_t max_rows = std::int64_t{map.num_ranks()} * max_tokens;
  return {.num_tokens = routing.num_tokens,
          .topk = routing.topk,
          .num_physical = map.num_physical(),
          .num_local = map.num_local(self),
          .num_ranks = map.num_ranks(),
          .unique = options.layout == Layout::token_unique,
          .max_rows = max_rows,
          .max_expert_rows =
              max_rows * std::min<std::int64_t>(routing.topk, most_local) + most_local * (options.alignment - 1)};
}

std::uint64_t hash_of(std::uint64_t number, const DeviceRouting& routing, const ExpertMap& map,
                      const DevicePlanOptions& options) {
  return Hasher()
      .add(number)
      .add(map.hash())
      .add(static_cast<std::uint64_t>(routing.topk))
      .add(static_cast<std::uint64_t>(options.layout))
      .add(static_cast<std::uint64_t>(options.alignment))
      .add(static_cast<std::uint64_t>(options.capacity))
      .add(static_cast<std::uint64_t>(options.max_rows))
      .add(static_cast<std::uint64_t>(options.overflow))
      .add(is_given(options.rows))
      .value();
}

/// A plan with memory for everything, of which nothing is filled yet.
std::shared_ptr<DevicePlanData> make_plan(const std::shared_ptr<DeviceEngine::Impl>& engine,
                                          const DeviceRouting& routing, const ExpertMap& map,
                                          const DevicePlanOptions& options) {
  auto plan = std::make_shared<DevicePlanData>();
  plan->map = engine->tables_of(map);
  plan->options = options;
  plan->engine = engine;
  plan->num_rows = options.max_rows;
  plan->shape = shape_of(routing, map, options, engine->options.max_tokens, RankId(engine->self));
  plan->block = engine->allocate_hidden(device::PlanBlock(plan->shape, nullptr).bytes());
  plan->arrays = device::PlanBlock(plan->shape, plan->block.get()).arrays();
  const auto words_of_entries = [&] {
    return engine->allocate_hidden(static_cast<std::size_t>(routing.num_tokens * routing.topk) * sizeof(std::int32_t));
  };
  if (plan->shape.unique && options.capacity != PlanOptions::kUnlimited) plan->clamped = words_of_entries();
  if (map.has_replicas()) plan->copies = words_of_entries();
  // Counted when nothing can fail any more: a rank that finds no room may try again while the others wait.
  plan->hash = hash_of(engine->num_plans++, routing, map, options);
  return plan;
}

/// What fills a plan, one kernel after the other.
class PlanLaunches {
 public:
  PlanLaunches(const DeviceEngine::Impl& engine, const DevicePlanData& plan, const DeviceRouting& routing)
      : engine_(engine),
        plan_(plan),
        control_(engine.control),
        routing_{.experts = routing.experts,
                 .copies = copies(),
                 .weights = routing.weights,
                 .num_tokens = routing.num_tokens,
                 .topk = routing.topk,
                 .self = engine.self} {
    control_.shown = plan.arrays.shown;
  }

  void choose_copies() const {
    if (copies()) device::launch_choose(routing_, *plan_.map, copies(), engine_.stream);
  }

  void exchange_counts(const device::SlotRules& rules) const {
    device::launch_count(routing_, *plan_.map, plan_.arrays, engine_.stream);
    const device::Tag tag{OpKind::plan, device::Phase::begin, plan_.hash};
    device::launch(
        device::CountExchange{.control = control_,
                              .note = plan_.shape.unique ? engine_.note(tag, plan_.block.get()) : note_with_rows(tag),
                              .shape = plan_.shape,
                              .map = *plan_.map,
                              .rules = rules,
                              .plan = plan_.arrays,
                              .told = &engine_.page().sizes,
                              .experts = routing_.experts,
                              .drops = plan_.options.overflow == Overflow::drop},
        engine_.stream);
  }

  /// What follows sees no entries that are beyond the capacity.
  void clamp() {
    auto* const experts = reinterpret_cast<std::int32_t*>(plan_.clamped.get());
    device::launch(device::Clamp{routing_, *plan_.map, plan_.arrays, experts, copies(), stop()}, engine_.stream);
    routing_.experts = experts;
  }

  void place() const {
    device::launch(device::Place{.routing = routing_,
                                 .map = *plan_.map,
                                 .shape = plan_.shape,
                                 .plan = plan_.arrays,
                                 .unique_maps = plan_.arrays.shown,
                                 .flat = engine_.options.reduction == Reduction::flat,
                                 .stop = stop()},
                   engine_.stream);
    // Maps are whole when all senders have written their part.
    if (plan_.shape.unique)
      device::launch_meeting(control_, note_with_rows({OpKind::plan, device::Phase::end, plan_.hash}), engine_.stream);
  }

 private:
  [[nodiscard]] device::Note note_with_rows(device::Tag tag) const {
    return engine_.note(tag, plan_.options.rows.data, plan_.options.row_scales.data);
  }
  [[nodiscard]] std::int32_t* copies() const { return reinterpret_cast<std::int32_t*>(plan_.copies.get()); }
  [[nodiscard]] const std::uint32_t* stop() const { return &control_.progress->fault; }

  const DeviceEngine::Impl& engine_;
  const DevicePlanData& plan_;
  device::Control control_;  // what ranks show is kept in the plan
  device::RoutingView routing_;
};

}  // namespace

DevicePlan DeviceEngine::plan(const DeviceRouting& routing, const ExpertMap& map, const DevicePlanOptions& options,
                              Stream after) {
  Impl& engine = *impl_;
  check_request(routing, map, options, engine);
  check_rows(options, engine);
  const device::OnDevice scope(engine.device());
  const bool exact = options.max_rows == 0;
  if (exact && engine.is_capturing())
    fail(ErrorCode::invalid_argument, "rank {}: plan: what is captured needs max_rows", engine.self);
  engine.start_after(after);

  const std::shared_ptr<DevicePlanData> plan = make_plan(impl_, routing, map, options);
  PlanLaunches launches(engine, *plan, routing);
  device::SlotRules rules{options.capacity, exact ? kMostRows : options.max_rows, options.alignment};
  launches.choose_copies();
  if (plan->clamped) {
    // A token that loses all of its rows on a rank is not among the rank's: tokens are counted without what is dropped.
    launches.exchange_counts({options.capacity, kMostRows, options.alignment});
    launches.clamp();
    rules.capacity = PlanOptions::kUnlimited;
  }
  launches.exchange_counts(rules);
  // The host waits for sizes only, while the device goes on to place rows.
  const device::Events::Event sized = exact ? engine.events->record(engine.stream) : nullptr;
  launches.place();
  engine.set_just_planned(*plan);
  if (exact) {
    device::check(cudaEventSynchronize(sized.get()), "wait for sizes");
    engine.throw_if_faulty();
    plan->num_rows = engine.page().sizes.num_rows;
  }
  return DevicePlan(plan);
}

Layout DevicePlan::layout() const { return data_->options.layout; }
std::int64_t DevicePlan::num_tokens() const { return data_->shape.num_tokens; }
std::int32_t DevicePlan::topk() const { return data_->shape.topk; }
std::int32_t DevicePlan::num_local_experts() const { return data_->shape.num_local; }
std::int64_t DevicePlan::num_rows() const { return data_->num_rows; }
const std::int32_t* DevicePlan::expert_offsets() const { return data_->arrays.expert_offsets; }
const std::int32_t* DevicePlan::expert_counts() const { return data_->arrays.expert_counts; }

namespace {

const std::int32_t* unique_map(const DevicePlanData& plan, std::int64_t device::UniqueMaps::*which) {
  return plan.shape.unique ? plan.arrays.unique_maps + device::UniqueMaps::of(plan.shape).*which : nullptr;
}

}  // namespace

const std::int32_t* DevicePlan::unique_of_expert_row() const {
  return unique_map(*data_, &device::UniqueMaps::unique_of_expert_row);
}
const std::int32_t* DevicePlan::expert_rows_of_unique() const {
  return unique_map(*data_, &device::UniqueMaps::expert_rows_of_unique);
}
const std::int32_t* DevicePlan::unique_experts() const {
  return unique_map(*data_, &device::UniqueMaps::unique_experts);
}
const float* DevicePlan::unique_weights() const {
  return reinterpret_cast<const float*>(unique_map(*data_, &device::UniqueMaps::unique_weights));
}

DevicePlan::Sizes DevicePlan::sizes() const {
  const DeviceEngine::Impl& engine = *data_->engine;
  const device::OnDevice scope(engine.device());
  if (engine.is_capturing())
    fail(ErrorCode::invalid_argument, "rank {}: sizes: the host can't wait for what is being captured", engine.self);
  device::PlanSizes sizes;
  engine.copy_when_idle(&sizes, data_->arrays.sizes, sizeof(sizes), "read sizes back");
  engine.throw_if_faulty();
  return {sizes.num_rows, sizes.num_expert_rows, sizes.overflowed != 0};
}

}  // namespace shunt
