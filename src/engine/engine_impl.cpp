#include "engine/engine_impl.hpp"

#include <atomic>
#include <cstring>
#include <functional>

#include "core/fail.hpp"
#include "core/hash.hpp"

namespace shunt {
namespace {

class PendingOperation final : public Pending {
 public:
  /// Throws Error(invalid_argument) if the rank has kMostTickets already.
  PendingOperation(std::shared_ptr<Fabric> fabric, std::shared_ptr<Operation> operation)
      : fabric_(std::move(fabric)), operation_(std::move(operation)) {
    fabric_->progress().add_ticket(*operation_);
  }
  ~PendingOperation() override { fabric_->progress().remove_ticket(); }
  PendingOperation(const PendingOperation&) = delete;
  PendingOperation& operator=(const PendingOperation&) = delete;

  void wait() override { fabric_->progress().wait(*operation_); }
  [[nodiscard]] bool done() const override { return operation_->done(); }
  void abandon() override {
    if (fabric_->progress().wait_for(*operation_, fabric_->environment().liveness)) return;
    Transport& transport = fabric_->transport();
    transport.report(ErrorCode::peer_failed, transport.rank(),
                     fmt::format("rank {} dropped a ticket of {} because of an exception", transport.rank(),
                                 to_string(operation_->announcement().kind)));
  }

 private:
  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Operation> operation_;
};

void check_summable(RankId rank, const char* name, DType dtype) {
  if (dtype != f32 && dtype != bf16 && dtype != f16)
    fail(ErrorCode::invalid_argument, "rank {}: engine: {} is {}, expected f32, bf16 or f16", rank, name,
         to_string(dtype));
}

}  // namespace

Engine::Impl::Impl(const World& engine_world, const EngineOptions& engine_options)
    : world(engine_world.impl()), options(engine_options) {
  constexpr std::int64_t kMostHidden = std::int64_t{1} << 31;
  if (options.hidden < 1 || options.hidden > kMostHidden)
    fail(ErrorCode::invalid_argument, "rank {}: engine: hidden is {}, expected 1 to {}", rank(), options.hidden,
         kMostHidden);
  if (size_of(options.dtype) == 0)
    fail(ErrorCode::invalid_argument, "rank {}: engine: dtype {} does not exist", rank(),
         static_cast<int>(options.dtype));
  if (options.reduction != Reduction::tree && options.reduction != Reduction::flat)
    fail(ErrorCode::invalid_argument, "rank {}: engine: reduction {} does not exist, expected tree or flat", rank(),
         static_cast<int>(options.reduction));
  if (!options.expert_dtype) options.expert_dtype = options.dtype == fp8_e4m3 ? bf16 : options.dtype;
  if (!options.result_dtype) options.result_dtype = options.expert_dtype;
  if (!options.wire_dtype) options.wire_dtype = options.expert_dtype;
  if (!options.deadline) options.deadline = world->fabric->environment().deadline;
  options.deadline = Environment::checked("engine: deadline", *options.deadline);
  check_summable(rank(), "expert_dtype", *options.expert_dtype);
  check_summable(rank(), "result_dtype", *options.result_dtype);
  check_summable(rank(), "wire_dtype", *options.wire_dtype);
  if (const auto& [recorder, layer] = options.trace; recorder && (layer < 0 || layer >= recorder->shape().layers))
    fail(ErrorCode::invalid_argument, "rank {}: engine: trace.layer is {}, expected 0 to {}", rank(), layer,
         recorder->shape().layers - 1);
  static std::atomic<std::uint64_t> num_engines{0};
  serial = ++num_engines;
  key = Hasher().add(world->group->id).add(++world->num_engines).value();
}

EngineShape Engine::Impl::shape() const {
  return {.hidden = options.hidden,
          .dtype = options.dtype,
          .expert_dtype = *options.expert_dtype,
          .result_dtype = *options.result_dtype,
          .wire_dtype = *options.wire_dtype,
          .flat = options.reduction == Reduction::flat,
          .ids = options.companions.ids,
          .weights = options.companions.weights};
}

RowFormat Engine::Impl::row_format(Layout layout) const {
  const auto hidden = static_cast<std::size_t>(options.hidden);
  return {hidden * size_of(options.dtype), options.dtype == fp8_e4m3 ? scales_per_row(hidden) : 0,
          options.companions.ids, options.companions.weights && layout != Layout::token_unique};
}

const PlanData& Engine::Impl::check_plan(const Plan& plan, std::string_view operation) const {
  if (!plan.data()) fail(ErrorCode::invalid_argument, "rank {}: {}: the plan is empty", rank(), operation);
  if (plan.data()->engine != serial)
    fail(ErrorCode::invalid_argument, "rank {}: {}: the plan was made by another engine", rank(), operation);
  return *plan.data();
}

void Engine::Impl::check_trace(const Routing& routing, const ExpertMap& map) const {
  if (!options.trace.recorder) return;
  const TraceShape& shape = options.trace.recorder->shape();
  if (routing.topk != shape.topk || map.num_experts() != shape.experts)
    fail(ErrorCode::invalid_argument,
         "rank {}: plan: the trace is of top-{} of {} experts, the routing top-{}, the map of {} experts", rank(),
         shape.topk, shape.experts, routing.topk, map.num_experts());
}

void Engine::Impl::check_apart(std::string_view operation, const ConstTensor& input, const Tensor& out) const {
  const std::less<const std::byte*> before;
  if (before(input.data, out.data + out.bytes()) && before(out.data, input.data + input.bytes()))
    fail(ErrorCode::invalid_argument, "rank {}: {}: out overlaps the input", rank(), operation);
}

Tensor Engine::Impl::expert_rows(const PlanData& plan) const {
  Tensor tensor{nullptr, *options.expert_dtype, plan.num_rows(), options.hidden, nullptr};
  const Block block = allocate(tensor.bytes());
  tensor.data = block.data;
  tensor.owner = block.owner;
  return tensor;
}

Block Engine::Impl::show_to_peers(const ConstTensor& tensor) const {
  if (tensor.data && offset_of(tensor.data, tensor.bytes()))
    return {const_cast<std::byte*>(tensor.data), tensor.bytes(), tensor.owner};  // peers only read it
  Block block = allocate(tensor.bytes());
  if (tensor.bytes() > 0) std::memcpy(block.data, tensor.data, tensor.bytes());
  return block;
}

std::shared_ptr<Pending> Engine::Impl::issue(const std::shared_ptr<Operation>& operation) {
  auto pending = std::make_shared<PendingOperation>(world->fabric, operation);
  world->fabric->progress().issue(operation, next_sequence);
  return pending;
}

}  // namespace shunt
