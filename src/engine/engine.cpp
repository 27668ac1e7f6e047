#include "shunt/engine.hpp"

#include "core/fail.hpp"
#include "engine/device_library.hpp"
#include "engine/engine_impl.hpp"
#include "engine/host_engine.hpp"

namespace shunt {
namespace {

std::shared_ptr<Engine::Impl> make_impl(World& world, const EngineOptions& options) {
  return name_errors(options.name, [&]() -> std::shared_ptr<Engine::Impl> {
    if (!options.device) return std::make_shared<HostEngine>(world, options);
    return require_device_library().make_engine(world, options);
  });
}

}  // namespace

Engine::Engine(World& world, const EngineOptions& options) : impl_(make_impl(world, options)) {}

const EngineOptions& Engine::options() const { return impl_->options; }
Memory Engine::memory() const { return impl_->memory(); }
Stream Engine::stream() const { return impl_->stream(); }
void Engine::check() const {
  impl_->named([&] { impl_->check(); });
}
const std::uint32_t* Engine::fault_word() const { return impl_->fault_word(); }

Plan Engine::plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options) {
  Impl& engine = *impl_;
  if (options.layout == Layout::token_unique && engine.options.reduction == Reduction::flat)
    fail(ErrorCode::invalid_argument,
         "rank {}: {}: token_unique sums per rank; reduction = flat needs expert_major or padded", engine.rank(),
         engine.title("plan"));
  if (options.layout == Layout::padded) engine.require(Feature::padded, "plan");
  if (options.stream) engine.require(Feature::streams, "plan");
  if (options.max_rows != 0 || options.overflow != Overflow::fault || is_given(options.rows) ||
      is_given(options.row_scales))
    engine.require(Feature::bounds, "plan");
  if (!routing.memory.is_host()) engine.require(Feature::device_inputs, "plan");
  for (const auto& [name, size, data] :
       {std::tuple("experts", routing.experts.size(), routing.experts.data()),
        std::tuple("weights", routing.weights.size(), static_cast<const void*>(routing.weights.data()))})
    if (size > 0 && !data)
      fail(ErrorCode::invalid_argument, "rank {}: {}: the routing has {} {} without data", engine.rank(),
           engine.title("plan"), size, name);
  engine.check_trace(routing, map);
  return engine.named([&] { return engine.plan(routing, map, options); });
}

Ticket<Rows> Engine::dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options) {
  Impl& engine = *impl_;
  const PlanData& data = engine.check_plan(plan, "dispatch");
  if (options.stream) engine.require(Feature::streams, "dispatch");
  if (!x.memory.is_host()) engine.require(Feature::device_inputs, "dispatch");
  const std::string title = engine.title("dispatch");
  engine.checks().dispatch_input(title, data.num_tokens, x, options.scales);
  engine.checks().out_scales(title, options.out_scales, data.num_rows());
  if (!options.scales.memory.is_host()) engine.require(Feature::device_inputs, "dispatch");
  if (data.options.layout == Layout::padded) {
    if (is_given(options.scales)) engine.require(Feature::padded_scales, "dispatch");
    if (is_given(options.out) || is_given(options.out_scales)) engine.require(Feature::padded_outputs, "dispatch");
  }
  if (is_given(options.out)) engine.check_output("dispatch", options.out, engine.options.dtype, data.num_rows(), x);
  if (is_given(options.out)) engine.check_apart("dispatch", "out", options.out, options.scales);
  if (is_given(options.out_scales)) {
    engine.check_place("dispatch", "out_scales", options.out_scales, options.scales);
    engine.check_apart("dispatch", "out_scales", options.out_scales, x);
    engine.check_apart("dispatch", "out_scales", options.out_scales, options.out);
  }
  if (is_given(data.options.rows) && (is_given(options.out) || is_given(options.out_scales)))
    fail(ErrorCode::invalid_argument, "rank {}: {}: the plan was given rows, so it takes no out", engine.rank(), title);
  return engine.named([&] { return engine.dispatch(plan, x, options); });
}

Ticket<Tensor> Engine::combine(const Plan& plan, const ConstTensor& expert_out, const CombineOptions& options) {
  return impl_->pull(OpKind::combine, plan, expert_out, options);
}

Ticket<Tensor> Engine::dispatch_backward(const Plan& plan, const ConstTensor& grad_rows,
                                         const CombineOptions& options) {
  return impl_->pull(OpKind::dispatch_backward, plan, grad_rows, options);
}

Ticket<Gradients> Engine::combine_backward(const Plan& plan, const ConstTensor& grad_out, const ConstTensor& expert_out,
                                           const CombineOptions& options) {
  Impl& engine = *impl_;
  const PlanData& data = engine.check_plan(plan, "combine_backward");
  if (options.stream) engine.require(Feature::streams, "combine_backward");
  engine.check_gradients(data, "combine_backward");
  if (is_given(options.out))
    fail(ErrorCode::invalid_argument, "rank {}: {}: it delivers gradients in tensors of its own and takes no out",
         engine.rank(), engine.title("combine_backward"));
  const bool has_weights = data.options.layout != Layout::token_unique;
  const DType expert_dtype = *engine.options.expert_dtype;
  engine.check_tensor("combine_backward", "grad_out", grad_out, *engine.options.result_dtype, data.num_tokens);
  if (has_weights) engine.check_tensor("combine_backward", "expert_out", expert_out, expert_dtype, data.num_rows());
  if (!grad_out.memory.is_host() || !expert_out.memory.is_host())
    engine.require(Feature::device_inputs, "combine_backward");
  return engine.named([&]() -> Ticket<Gradients> {
    Gradients gradients{engine.allocate(expert_dtype, data.num_rows(), engine.options.hidden), {}};
    if (has_weights) gradients.weights = engine.allocate(f32, data.num_tokens, data.topk);
    auto pending = engine.start(
        Impl::Backward{plan, grad_out, has_weights ? expert_out : ConstTensor(), gradients, options.stream});
    return {std::move(pending), std::move(gradients)};
  });
}

Tensor Engine::expert_out(const Plan& plan) const {
  const PlanData& data = impl_->check_plan(plan, "expert_out");
  return impl_->named([&] { return impl_->expert_out(data); });
}

Tensor Engine::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;
  if (rows < 0 || cols < 0 || (rows > 0 && cols > kMostBytes / 4 / rows))
    fail(ErrorCode::invalid_argument, "rank {}: {}: can't allocate [{}, {}]", impl_->rank(), impl_->title("engine"),
         rows, cols);
  return impl_->named([&] { return impl_->allocate(dtype, rows, cols); });
}

void Engine::copy(const ConstTensor& from, const Tensor& to) const {
  const std::string title = impl_->title("copy");
  if (from.dtype != to.dtype || from.rows != to.rows || from.cols != to.cols)
    fail(ErrorCode::invalid_argument, "rank {}: {}: from {} [{}, {}] to {} [{}, {}]", impl_->rank(), title,
         to_string(from.dtype), from.rows, from.cols, to_string(to.dtype), to.rows, to.cols);
  if (from.bytes() > 0 && (!from.data || !to.data))
    fail(ErrorCode::invalid_argument, "rank {}: {}: a tensor has no data", impl_->rank(), title);
  if (!from.memory.is_host() || !to.memory.is_host()) impl_->require(Feature::device_inputs, "copy");
  impl_->named([&] { impl_->copy(from, to); });
}

void Engine::leave_out(std::span<const RankId> ranks) {
  impl_->require(Feature::leaving_out, "leave_out");
  impl_->named([&] { impl_->leave_out(ranks); });
}

std::optional<RankId> Engine::missing() const { return impl_->missing(); }

}  // namespace shunt
