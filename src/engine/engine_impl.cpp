#include "engine/engine_impl.hpp"

#include <atomic>
#include <functional>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

void check_summable(RankId rank, const std::string& engine, const char* name, DType dtype) {
  if (dtype != f32 && dtype != bf16 && dtype != f16)
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} is {}, expected f32, bf16 or f16", rank, engine, name,
         to_string(dtype));
}

void check_device(const DeviceOptions& device, RankId rank, const std::string& engine) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
  constexpr std::int32_t kMostExperts = 1 << 20;
  constexpr std::size_t kLeastHeap = 1 << 20, kMostHeap = std::size_t{1} << 48;
  const auto demand = [&](bool holds, const char* name, auto value, const std::string& expected) {
    if (!holds)
      fail(ErrorCode::invalid_argument, "rank {}: {}: device.{} is {}, expected {}", rank, engine, name, value,
           expected);
  };
  demand(device.index >= -1, "index", device.index, "-1 or a device");
  demand(device.max_tokens >= 0 && device.max_tokens <= kMostTokens, "max_tokens", device.max_tokens,
         fmt::format("0 to {}", kMostTokens));
  demand(device.max_experts >= 1 && device.max_experts <= kMostExperts, "max_experts", device.max_experts,
         fmt::format("1 to {}", kMostExperts));
  demand(device.heap_bytes >= kLeastHeap && device.heap_bytes <= kMostHeap, "heap_bytes", device.heap_bytes,
         fmt::format("{} to {}", kLeastHeap, kMostHeap));
  demand(device.sms >= 0, "sms", device.sms, "at least 0");
  demand(device.num_batches >= 1, "num_batches", device.num_batches, "at least 1");
}

}  // namespace

EngineOptions complete(const World& of, EngineOptions options, EngineKind kind) {
  constexpr std::int64_t kMostHidden = std::int64_t{1} << 31;
  const World::Impl& world = *of.impl();
  const RankId rank = world.group->self;
  const std::string engine = title_of("engine", options.name);
  const auto require = [&](Feature feature) { shunt::require(kind, feature, rank, engine); };
  if (options.hidden < 1 || options.hidden > kMostHidden)
    fail(ErrorCode::invalid_argument, "rank {}: {}: hidden is {}, expected 1 to {}", rank, engine, options.hidden,
         kMostHidden);
  if (size_of(options.dtype) == 0)
    fail(ErrorCode::invalid_argument, "rank {}: {}: dtype {} does not exist", rank, engine,
         static_cast<int>(options.dtype));
  if (options.reduction != Reduction::tree && options.reduction != Reduction::flat)
    fail(ErrorCode::invalid_argument, "rank {}: {}: reduction {} does not exist, expected tree or flat", rank, engine,
         static_cast<int>(options.reduction));
  if (!options.expert_dtype) options.expert_dtype = options.dtype == fp8_e4m3 ? bf16 : options.dtype;
  if (!options.result_dtype) options.result_dtype = options.expert_dtype;
  if (!options.wire_dtype) options.wire_dtype = options.expert_dtype;
  if (!options.rank_dtype) options.rank_dtype = f32;
  if (!options.deadline) options.deadline = world.comm->environment().deadline;
  options.deadline = Environment::checked("engine: deadline", *options.deadline);
  check_summable(rank, engine, "expert_dtype", *options.expert_dtype);
  check_summable(rank, engine, "result_dtype", *options.result_dtype);
  check_summable(rank, engine, "wire_dtype", *options.wire_dtype);
  if (options.rank_dtype != f32) {
    if (options.rank_dtype != options.expert_dtype)
      fail(ErrorCode::invalid_argument, "rank {}: {}: rank_dtype is {}, expected f32 or expert_dtype, which is {}",
           rank, engine, to_string(*options.rank_dtype), to_string(*options.expert_dtype));
    require(Feature::rounded_ranks);
  }
  if (options.companions.ids || options.companions.weights) require(Feature::companions);
  if (const auto& [recorder, layer] = options.trace; recorder) {
    require(Feature::trace);
    if (layer < 0 || layer >= recorder->shape().layers)
      fail(ErrorCode::invalid_argument, "rank {}: {}: trace.layer is {}, expected 0 to {}", rank, engine, layer,
           recorder->shape().layers - 1);
  }
  if (options.device) {
    check_device(*options.device, rank, engine);
    if (options.device->sms > 0) require(Feature::few_sms);
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

const PlanData& Engine::Impl::check_plan(const Plan& plan, std::string_view operation) const {
  if (!plan.data()) fail(ErrorCode::invalid_argument, "rank {}: {}: the plan is empty", rank(), title(operation));
  if (plan.data()->engine != serial)
    fail(ErrorCode::invalid_argument, "rank {}: {}: the plan was made by another engine", rank(), title(operation));
  return *plan.data();
}

void Engine::Impl::check_trace(const Routing& routing, const ExpertMap& map) const {
  if (!options.trace.recorder) return;
  const TraceShape& shape = options.trace.recorder->shape();
  if (routing.topk != shape.topk || map.num_experts() != shape.experts)
    fail(ErrorCode::invalid_argument,
         "rank {}: {}: the trace is of top-{} of {} experts, the routing top-{}, the map of {} experts", rank(),
         title("plan"), shape.topk, shape.experts, routing.topk, map.num_experts());
}

void Engine::Impl::check_gradients(const PlanData& plan, std::string_view operation) const {
  if (plan.options.layout == Layout::padded) require(Feature::padded_gradients, operation);
  if (plan.options.packed) require(Feature::packed_gradients, operation);
}

void Engine::Impl::check_output(std::string_view operation, const Tensor& given, DType dtype, std::int64_t rows,
                                const ConstTensor& input) const {
  check_tensor(operation, "out", given, dtype, rows);
  check_place(operation, "out", given, input);
}

void Engine::Impl::check_place(std::string_view operation, std::string_view name, const Tensor& given,
                               const ConstTensor& input) const {
  if (given.memory != memory()) require(Feature::foreign_outputs, operation);
  if (!given.is_contiguous()) require(Feature::strided_outputs, operation);
  check_apart(operation, name, given, input);
}

void Engine::Impl::check_apart(std::string_view operation, std::string_view name, const Tensor& given,
                               const ConstTensor& other) const {
  const std::less<const std::byte*> before;
  if (before(other.data, given.data + given.extent_bytes()) && before(given.data, other.data + other.extent_bytes()))
    fail(ErrorCode::invalid_argument, "rank {}: {}: {} overlaps another tensor of the call", rank(), title(operation),
         name);
}

Tensor Engine::Impl::output(std::string_view operation, const Tensor& given, DType dtype, std::int64_t rows,
                            const ConstTensor& input) const {
  if (!is_given(given)) return named([&] { return allocate(dtype, rows, options.hidden); });
  check_output(operation, given, dtype, rows, input);
  return given;
}

Ticket<Tensor> Engine::Impl::pull(OpKind pulled, const Plan& plan, const ConstTensor& rows,
                                  const CombineOptions& pull_options) {
  const auto name = to_string(pulled);
  const PlanData& data = check_plan(plan, name);
  if (pull_options.stream) require(Feature::streams, name);
  if (pulled != OpKind::combine) check_gradients(data, name);
  check_tensor(name, pulled == OpKind::combine ? "expert_out" : "grad_rows", rows, *options.expert_dtype,
               data.num_rows());
  if (!rows.memory.is_host()) require(Feature::device_inputs, name);
  const Tensor out = output(name, pull_options.out, *options.result_dtype, data.num_tokens, rows);
  return {named([&] { return start(Pull{pulled, plan, rows, out, pull_options.stream}); }), out};
}

Tensor Engine::Impl::expert_out(const PlanData& plan) const {
  return allocate(*options.expert_dtype, plan.num_rows(), options.hidden);
}

void Engine::Impl::check() const {
  if (const auto fault = world->comm->transport().fault())
    fail(fault->code, "{}; rank {} called {}", fault->text, rank(), title("check"));
}

}  // namespace shunt
