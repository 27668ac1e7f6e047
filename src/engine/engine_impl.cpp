#include "engine/engine_impl.hpp"

#include <atomic>
#include <functional>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

void check_device(const Call& call, const DeviceOptions& device) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  constexpr std::int32_t kMostExperts = 1 << 20;
  constexpr std::size_t kLeastHeap = 1 << 20, kMostHeap = std::size_t{1} << 48;
  const auto demand_range = [&](const char* name, auto value, auto least, auto most) {
    call.demand(value >= least && value <= most, "device.{} is {}, expected {} to {}", name, value, least, most);
  };
  call.demand(device.index >= -1, "device.index is {}, expected -1 or a device", device.index);
  demand_range("max_tokens", device.max_tokens, 0, kMostTokens);
  demand_range("max_experts", device.max_experts, 1, kMostExperts);
  demand_range("heap_bytes", device.heap_bytes, kLeastHeap, kMostHeap);
  call.demand(device.sms >= 0, "device.sms is {}, expected at least 0", device.sms);
  call.demand(device.num_batches >= 1, "device.num_batches is {}, expected at least 1", device.num_batches);
}

}  // namespace

EngineOptions complete(const World& of, EngineOptions options, EngineKind kind) {
  constexpr std::int64_t kMostHidden = std::int64_t{1} << 31;
  const World::Impl& world = *of.impl();
  const Call call{world.group->self, kind, "engine", options.name};
  call.demand(options.hidden >= 1 && options.hidden <= kMostHidden, "hidden is {}, expected 1 to {}", options.hidden,
              kMostHidden);
  call.demand(size_of(options.dtype) != 0, "dtype {} does not exist", static_cast<int>(options.dtype));
  call.demand(options.reduction == Reduction::tree || options.reduction == Reduction::flat,
              "reduction {} does not exist, expected tree or flat", static_cast<int>(options.reduction));
  if (!options.expert_dtype) options.expert_dtype = options.dtype == fp8_e4m3 ? bf16 : options.dtype;
  if (!options.result_dtype) options.result_dtype = options.expert_dtype;
  if (!options.wire_dtype) options.wire_dtype = options.expert_dtype;
  if (!options.rank_dtype) options.rank_dtype = f32;
  if (!options.deadline) options.deadline = world.comm->environment().deadline;
  options.deadline = Environment::checked("engine: deadline", *options.deadline);
  for (const auto& [name, dtype] :
       {std::pair("expert_dtype", *options.expert_dtype), std::pair("result_dtype", *options.result_dtype),
        std::pair("wire_dtype", *options.wire_dtype)})
    call.demand(dtype == f32 || dtype == bf16 || dtype == f16, "{} is {}, expected f32, bf16 or f16", name,
                to_string(dtype));
  if (options.rank_dtype != f32) {
    call.demand(options.rank_dtype == options.expert_dtype,
                "rank_dtype is {}, expected f32 or expert_dtype, which is {}", to_string(*options.rank_dtype),
                to_string(*options.expert_dtype));
    call.require(Feature::rounded_ranks);
  }
  if (options.companions.ids || options.companions.weights) call.require(Feature::companions);
  if (const auto& [recorder, layer] = options.trace; recorder) {
    call.require(Feature::trace);
    const std::int32_t last = recorder->shape().layers - 1;
    call.demand(layer >= 0 && layer <= last, "trace.layer is {}, expected 0 to {}", layer, last);
  }
  if (options.device) {
    check_device(call, *options.device);
    if (options.device->sms > 0) call.require(Feature::few_sms);
  }
  return options;
}

Engine::Impl::Impl(World& engine_world, const EngineOptions& engine_options, EngineKind engine_kind)
    : world(engine_world.impl()), options(complete(engine_world, engine_options, engine_kind)), kind(engine_kind) {
  // Each loaded library has a counter of its own; the kind keeps serials of different libraries apart.
  static std::atomic<std::uint64_t> num_engines{0};
  serial = ++num_engines * 4 + static_cast<std::uint64_t>(kind);
  key = Hasher().add(world->group->id, ++world->num_engines).value();
}

const PlanData& Engine::Impl::check_plan(const Call& call, const Plan& plan) const {
  call.demand(plan.data() != nullptr, "the plan is empty");
  call.demand(plan.data()->engine == serial, "the plan was made by another engine");
  return *plan.data();
}

void Engine::Impl::check_trace(const Routing& routing, const ExpertMap& map) const {
  if (!options.trace.recorder) return;
  const TraceShape& shape = options.trace.recorder->shape();
  call("plan").demand(routing.topk == shape.topk && map.num_experts() == shape.experts,
                      "the trace is of top-{} of {} experts, the routing top-{}, the map of {} experts", shape.topk,
                      shape.experts, routing.topk, map.num_experts());
}

void check_gradients(const Call& call, const PlanData& plan) {
  if (plan.options.layout == Layout::padded) call.require(Feature::padded_gradients);
  if (plan.options.packed) call.require(Feature::packed_gradients);
}

void Engine::Impl::check_place(const Call& call, std::string_view name, const Tensor& given,
                               const ConstTensor& input) const {
  if (given.memory != memory()) call.require(Feature::foreign_outputs);
  if (!given.is_contiguous()) call.require(Feature::strided_outputs);
  check_apart(call, name, given, input);
}

void check_apart(const Call& call, std::string_view name, const Tensor& given, const ConstTensor& other) {
  const std::less<const std::byte*> before;
  const bool overlaps =
      before(other.data, given.data + given.extent_bytes()) && before(given.data, other.data + other.extent_bytes());
  call.demand(!overlaps, "{} overlaps another tensor of the call", name);
}

Ticket<Tensor> Engine::Impl::pull(OpKind pulled, const Plan& plan, const ConstTensor& rows,
                                  const CombineOptions& pull_options) {
  const Call call = this->call(to_string(pulled));
  const PlanData& data = check_plan(call, plan);
  if (pull_options.stream) call.require(Feature::streams);
  if (pulled != OpKind::combine) check_gradients(call, data);
  check_tensor(call, pulled == OpKind::combine ? "expert_out" : "grad_rows", rows, *options.expert_dtype,
               data.num_rows());
  if (!rows.memory.is_host()) call.require(Feature::device_inputs);
  const bool has_out = is_given(pull_options.out);
  if (has_out) {
    check_tensor(call, "out", pull_options.out, *options.result_dtype, data.num_tokens);
    check_place(call, "out", pull_options.out, rows);
  }
  return named([&]() -> Ticket<Tensor> {
    const Tensor out = has_out ? pull_options.out : allocate(*options.result_dtype, data.num_tokens, options.hidden);
    return {start(Pull{pulled, plan, rows, out, pull_options.stream}), out};
  });
}

Tensor Engine::Impl::expert_out(const PlanData& plan) const {
  return allocate(*options.expert_dtype, plan.num_rows(), options.hidden);
}

void Engine::Impl::check() const {
  if (const auto fault = world->comm->transport().fault())
    fail(fault->code, "{}; rank {} called {}", fault->text, rank(), title("check"));
}

namespace {

class Completed final : public Pending {
 public:
  void wait() override {}
  void wait_on(Stream) override {}
  [[nodiscard]] bool done() const override { return true; }
  void drop(bool) override {}
};

}  // namespace

Ticket<Plan> Engine::Impl::start_plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) {
  return {std::make_shared<Completed>(), plan(routing, map, plan_options)};
}

}  // namespace shunt
