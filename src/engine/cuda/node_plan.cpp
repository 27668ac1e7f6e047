// Plans on the devices of one node: making them, and reading them back.
#include "engine/cuda/node_plan.hpp"

#include <algorithm>
#include <limits>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "core/hash.hpp"
#include "engine/cuda/count_exchange.hpp"
#include "engine/cuda/node_engine.hpp"
#include "kernels/cuda/send_padded.hpp"
#include "plan/cuda/choose.hpp"
#include "plan/cuda/count.hpp"
#include "plan/cuda/place.hpp"
#include "plan/cuda/plan_arrays.hpp"
#include "plan/cuda/routing_view.hpp"
#include "plan/request.hpp"

namespace shunt {
namespace {

constexpr std::int64_t kMostRows = std::numeric_limits<std::int32_t>::max();

device::PlanShape shape_of(const Routing& routing, const ExpertMap& map, const PlanOptions& options,
                           std::int64_t max_tokens, RankId self) {
  std::int64_t most_local = 0;
  for (std::int32_t rank = 0; rank < map.num_ranks(); ++rank)
    most_local = std::max<std::int64_t>(most_local, map.num_local(RankId(rank)));
  const std::int64_t max_rows = std::int64_t{map.num_ranks()} * max_tokens;
  return {.num_tokens = static_cast<std::int64_t>(routing.num_tokens()),
          .topk = routing.topk,
          .num_physical = map.num_physical(),
          .num_local = map.num_local(self),
          .num_ranks = map.num_ranks(),
          .unique = options.layout == Layout::token_unique,
          .max_rows = max_rows,
          .max_expert_rows =
              max_rows * std::min<std::int64_t>(routing.topk, most_local) + most_local * (options.alignment - 1)};
}

/// `padded` plans of a map have one hash: ranks may use different ones in the same operation.
std::uint64_t hash_of(const NodePlan& plan, const ExpertMap& map, std::uint64_t number) {
  const PlanOptions& options = plan.options;
  if (options.layout == Layout::padded) return PaddedBuffers::hash_of(map.hash(), options);
  return Hasher()
      .add(number, map.hash(), options.layout, plan.topk, options.alignment, options.capacity, options.max_rows,
           options.overflow, is_given(options.rows))
      .value();
}

template <class T>
std::span<const T> as_span(const std::int32_t* words, std::int64_t count) {
  return {reinterpret_cast<const T*>(words), static_cast<std::size_t>(count)};
}

}  // namespace

// The kernels that fill a plan, in order.
class NodeEngine::PlanLaunches {
 public:
  PlanLaunches(const NodeEngine& engine, const NodePlan& plan)
      : engine_(engine),
        plan_(plan),
        control_(engine.control_),
        routing_{.experts = plan.experts,
                 .copies = copies(),
                 .weights = plan.weights,
                 .num_tokens = plan.num_tokens,
                 .topk = plan.topk,
                 .self = engine.rank().value} {
    control_.published = plan.arrays.published;
  }

  void choose_copies() const {
    if (copies()) device::launch_choose(routing_, *plan_.map, copies(), engine_.cuda_stream);
  }

  void exchange_counts(const device::SlotRules& rules) const {
    device::launch_count(routing_, *plan_.map, plan_.arrays, engine_.cuda_stream);
    const device::Tag tag{OpKind::plan, device::Phase::begin, plan_.hash};
    device::launch(device::CountExchange{.control = control_,
                                         .record = plan_.shape.unique ? engine_.record(tag, plan_.block.get())
                                                                      : record_with_rows(tag),
                                         .shape = plan_.shape,
                                         .map = *plan_.map,
                                         .rules = rules,
                                         .plan = plan_.arrays,
                                         .host_sizes = &engine_.page_->sizes,
                                         .experts = routing_.experts,
                                         .drops = plan_.options.overflow == Overflow::drop},
                   engine_.cuda_stream);
  }

  /// Drops the entries beyond the capacity for all later kernels.
  void clamp() {
    auto* const experts = reinterpret_cast<std::int32_t*>(plan_.clamped.get());
    device::launch(device::Clamp{routing_, *plan_.map, plan_.arrays, experts, copies(), stop()}, engine_.cuda_stream);
    routing_.experts = experts;
  }

  void place() const {
    device::launch(device::Place{.routing = routing_,
                                 .map = *plan_.map,
                                 .shape = plan_.shape,
                                 .plan = plan_.arrays,
                                 .unique_maps = plan_.arrays.published,
                                 .flat = engine_.options.reduction == Reduction::flat,
                                 .stop = stop()},
                   engine_.cuda_stream);
    if (!plan_.shape.unique) return;
    // The index maps are complete when all senders have written their part; after a fault they name no row.
    const device::PlanArrays& arrays = plan_.arrays;
    auto* const maps = reinterpret_cast<std::byte*>(arrays.unique_maps);
    auto* const sizes = reinterpret_cast<std::byte*>(arrays.sizes);  // then offsets and counts, to the end of the block
    const std::size_t block_bytes = device::PlanBlock(plan_.shape, nullptr).bytes();
    const auto map_words = static_cast<std::size_t>(device::UniqueMaps::of(plan_.shape).num_words);
    device::launch_barrier(control_, record_with_rows({OpKind::plan, device::Phase::end, plan_.hash}),
                           engine_.cuda_stream, device::BarrierPart::whole,
                           {.outputs = {{maps, map_words * sizeof(std::int32_t)}},
                            .counts = {sizes, block_bytes - static_cast<std::size_t>(sizes - plan_.block.get())}});
  }

 private:
  [[nodiscard]] device::BarrierRecord record_with_rows(device::Tag tag) const {
    return engine_.record(tag, plan_.options.rows.data, plan_.options.row_scales.data);
  }
  [[nodiscard]] std::int32_t* copies() const { return reinterpret_cast<std::int32_t*>(plan_.copies.get()); }
  [[nodiscard]] const std::uint32_t* stop() const { return &control_.state->fault; }

  const NodeEngine& engine_;
  const NodePlan& plan_;
  device::Control control_;  // published addresses are kept in the plan
  device::RoutingView routing_;
};

void NodeEngine::check_plan_request(const Routing& routing, const ExpertMap& map,
                                    const PlanOptions& plan_options) const {
  const Call call = this->call("plan");
  check_request(routing, map, world->topology, rank(), plan_options);
  const auto num_tokens = static_cast<std::int64_t>(routing.num_tokens());
  const DeviceOptions& limits = *options.device;
  call.demand(map.num_physical() <= limits.max_experts, "the map has {} physical experts, max_experts is {}",
              map.num_physical(), limits.max_experts);
  call.demand(num_tokens <= limits.max_tokens, "{} tokens, max_tokens is {}", num_tokens, limits.max_tokens);
  call.demand(plan_options.max_rows >= 0 && plan_options.max_rows <= kMostRows, "max_rows is {}, expected 0 to {}",
              plan_options.max_rows, kMostRows);
  call.demand(plan_options.layout == Layout::expert_major || plan_options.overflow == Overflow::fault,
              "dropping rows needs expert_major");
  if (plan_options.layout == Layout::padded) {
    call.demand(plan_options.max_rows == 0 && !is_given(plan_options.rows),
                "a bound on padded rows is max_tokens alone");
    call.demand(map.num_physical() <= device::kMostPaddedExperts,
                "the map has {} physical experts, expected at most {} for padded", map.num_physical(),
                device::kMostPaddedExperts);
  } else if (device::tile_bytes(map.num_physical() + num_ranks(), routing.topk) > heap->most_tile_bytes) {
    call.fail(ErrorCode::unsupported, "{} physical experts with topk {} are more than a device's shared memory holds",
              map.num_physical(), routing.topk);
  }
  const auto& [rows, row_scales] = std::tie(plan_options.rows, plan_options.row_scales);
  if (!is_given(rows)) return call.demand(!is_given(row_scales), "row_scales without rows");
  call.demand(plan_options.max_rows > 0, "rows need max_rows");
  check_tensor(call, "rows", rows, options.dtype, plan_options.max_rows);
  call.demand(is_symmetric(rows), "rows did not come from Engine::allocate");
  call.demand(is_given(row_scales) == has_scales(), "row_scales come with fp8 rows, and only with them");
  if (!has_scales()) return;
  TensorChecks::tensor(call, "row_scales", row_scales, f32, plan_options.max_rows, checks().num_scales());
  call.demand(is_symmetric(row_scales), "row_scales did not come from Engine::allocate");
}

Plan NodeEngine::plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) {
  check_plan_request(routing, map, plan_options);
  const device::OnDevice scope(memory().device);
  const bool is_padded = plan_options.layout == Layout::padded;
  const bool is_exact = !is_padded && plan_options.max_rows == 0;
  if (!is_padded) require_all_ranks("plan");
  call("plan").demand(!is_exact || !capture_id(plan_options.stream), "what is captured needs max_rows");
  start_after(plan_options.stream);

  const std::shared_ptr<NodePlan> plan = make_plan(routing, map, plan_options);
  if (is_padded) {
    plan->padded = padded_buffers_of(map, plan_options);
    plan->hash = Hasher().add(plan->hash, plan->padded->generation).value();
    return Plan(plan);
  }
  narrow_experts(*plan);
  PlanLaunches launches(*this, *plan);
  device::SlotRules rules{plan_options.capacity, is_exact ? kMostRows : plan_options.max_rows, plan_options.alignment};
  launches.choose_copies();
  if (plan->clamped) {
    // A token whose rows on a rank are all dropped does not count there, so tokens are counted again after dropping.
    launches.exchange_counts({plan_options.capacity, kMostRows, plan_options.alignment});
    launches.clamp();
    rules.capacity = PlanOptions::kUnlimited;
  }
  launches.exchange_counts(rules);
  // The host waits for the sizes only, while the device places rows.
  const device::Events::Event sized = is_exact ? events_->record(cuda_stream) : nullptr;
  launches.place();
  just_planned_ = {plan.get(), capture_id()};
  if (is_exact) {
    device::check(cudaEventSynchronize(sized.get()), "wait for sizes");
    throw_if_faulty();
    plan->rows_of_rank[rank().index()] = page_->sizes.num_rows;
    plan->num_expert_rows = page_->sizes.num_expert_rows;
  }
  return Plan(plan);
}

/// Allocates all memory of a plan, and fills none.
std::shared_ptr<NodePlan> NodeEngine::make_plan(const Routing& routing, const ExpertMap& map,
                                                const PlanOptions& plan_options) {
  auto plan = std::make_shared<NodePlan>();
  plan->options = plan_options;
  plan->self = rank();
  plan->topk = routing.topk;
  plan->num_local_experts = map.num_local(rank());
  plan->num_tokens = static_cast<std::int64_t>(routing.num_tokens());
  plan->engine = serial;
  plan->owner = shared_from_this();
  plan->map = tables_of(map);
  plan->rows_of_rank.resize(static_cast<std::size_t>(num_ranks()));
  std::int64_t& num_rows = plan->rows_of_rank[rank().index()];
  if (plan_options.layout == Layout::padded) {
    num_rows = plan->num_expert_rows = std::int64_t{plan->num_local_experts} * num_ranks() * plan_options.max_tokens;
  } else {
    num_rows = plan_options.max_rows;
    plan->shape = shape_of(routing, map, plan_options, options.device->max_tokens, rank());
    plan->num_expert_rows = plan->shape.unique ? plan->shape.max_expert_rows : num_rows;
    plan->block = allocate_hidden(device::PlanBlock(plan->shape, nullptr).bytes());
    plan->arrays = device::PlanBlock(plan->shape, plan->block.get()).arrays();
    const std::size_t entries_bytes = routing.experts.size() * sizeof(std::int32_t);
    if (plan->shape.unique && plan_options.capacity != PlanOptions::kUnlimited)
      plan->clamped = allocate_hidden(entries_bytes);
    if (map.has_replicas()) plan->copies = allocate_hidden(entries_bytes);
  }
  bring_routing(*plan, routing);
  // Counted when nothing can fail any more: a rank without room may repeat the call while the others wait.
  plan->hash = hash_of(*plan, map, num_plans_);
  if (plan_options.layout != Layout::padded) ++num_plans_;
  return plan;
}

void NodeEngine::bring_routing(NodePlan& plan, const Routing& routing) const {
  const auto rounded_up = [](std::size_t bytes) { return (bytes + 15) / 16 * 16; };
  const ExpertIds& ids = routing.experts;
  const std::size_t id_bytes = ids.size_bytes();
  const std::size_t weight_bytes = routing.weights.size_bytes();
  const bool is_here = routing.memory == memory();
  const std::size_t narrow_bytes = ids.is_wide() ? rounded_up(ids.size() * sizeof(std::int32_t)) : 0;
  const std::size_t brought_bytes = is_here ? 0 : rounded_up(id_bytes) + weight_bytes;
  const void* given_ids = ids.data();
  plan.weights = routing.weights.empty() ? nullptr : routing.weights.data();
  if (narrow_bytes + brought_bytes > 0) plan.routing_block = allocate_hidden(narrow_bytes + brought_bytes);
  if (brought_bytes > 0) {
    require_no_capture("plan");
    std::byte* const to = plan.routing_block.get() + narrow_bytes;
    copy_when_idle(to, given_ids, id_bytes, "bring a routing to the device");
    given_ids = to;
    if (plan.weights) {
      auto* const weights = reinterpret_cast<float*>(to + rounded_up(id_bytes));
      copy_when_idle(weights, plan.weights, weight_bytes, "bring a routing to the device");
      plan.weights = weights;
    }
  }
  plan.wide_experts = ids.is_wide() ? static_cast<const std::int64_t*>(given_ids) : nullptr;
  plan.experts = ids.is_wide() ? reinterpret_cast<const std::int32_t*>(plan.routing_block.get())
                               : static_cast<const std::int32_t*>(given_ids);
}

void NodeEngine::narrow_experts(const NodePlan& plan) const {
  if (!plan.wide_experts) return;
  device::launch(device::NarrowExperts{.from = plan.wide_experts,
                                       .to = reinterpret_cast<std::int32_t*>(plan.routing_block.get()),
                                       .count = plan.num_tokens * plan.topk},
                 cuda_stream);
}

PlanArrays NodePlan::host_arrays() const {
  if (padded) return {.expert_offsets = padded->offsets};
  fail(ErrorCode::unsupported, "plan: rank {}: its arrays are on the device: device() has them, read() copies them",
       self);
}

PlanArrays NodePlan::device_arrays() const {
  const std::int64_t num_local = num_local_experts;
  if (padded) {
    const auto* const offsets = reinterpret_cast<const std::int32_t*>(padded->offsets_on_device.get());
    return {.expert_offsets = as_span<std::int32_t>(offsets, num_local + 1)};
  }
  PlanArrays all{.expert_offsets = as_span<std::int32_t>(arrays.expert_offsets, num_local + 1),
                 .expert_counts = as_span<std::int32_t>(arrays.expert_counts, num_local),
                 .row_count = as_span<std::int32_t>(&arrays.sizes->num_rows, 1)};
  if (!shape.unique) return all;
  const device::UniqueMaps maps = device::UniqueMaps::of(shape);
  const std::int64_t cells = num_rows() * topk;
  all.unique_of_expert_row = as_span<std::int32_t>(arrays.unique_maps + maps.unique_of_expert_row, num_expert_rows);
  all.expert_rows_of_unique = as_span<std::int32_t>(arrays.unique_maps + maps.expert_rows_of_unique, cells);
  all.unique_experts = as_span<std::int32_t>(arrays.unique_maps + maps.unique_experts, cells);
  all.unique_weights = as_span<float>(arrays.unique_maps + maps.unique_weights, cells);
  return all;
}

PlanContents NodePlan::read() const {
  if (padded) return {.num_rows = num_rows(), .num_expert_rows = num_expert_rows, .expert_offsets = padded->offsets};
  owner->require_no_capture("read");
  const device::OnDevice scope(owner->memory().device);
  const auto copied = [&]<class T>(std::span<const T> from, std::int64_t count) {
    std::vector<T> to(from.empty() ? 0 : static_cast<std::size_t>(count));
    if (!to.empty()) owner->copy_when_idle(to.data(), from.data(), to.size() * sizeof(T), "read a plan back");
    return to;
  };
  device::PlanSizes sizes{};
  owner->copy_when_idle(&sizes, arrays.sizes, sizeof(sizes), "read a plan back");
  owner->check();
  const PlanArrays all = device_arrays();
  const std::int64_t cells = std::int64_t{sizes.num_rows} * topk;
  return {.num_rows = sizes.num_rows,
          .num_expert_rows = sizes.num_expert_rows,
          .overflowed = sizes.overflowed != 0,
          .expert_offsets = copied(all.expert_offsets, num_local_experts + 1),
          .expert_counts = copied(all.expert_counts, num_local_experts),
          .unique_of_expert_row = copied(all.unique_of_expert_row, sizes.num_expert_rows),
          .expert_rows_of_unique = copied(all.expert_rows_of_unique, cells),
          .unique_experts = copied(all.unique_experts, cells),
          .unique_weights = copied(all.unique_weights, cells)};
}

void NodePlan::require_counts(std::string_view what) const {
  fail(ErrorCode::unsupported, "plan: rank {}: {} is not known of plans that are made on a device", self, what);
}

}  // namespace shunt
