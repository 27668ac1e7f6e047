#include "shunt/engine.hpp"

#include "engine/device_library.hpp"
#include "engine/engine_impl.hpp"
#include "engine/host_engine.hpp"

namespace shunt {

Engine::Engine(World& world, const EngineOptions& options)
    : impl_(name_errors(options.name, [&] {
        return options.device ? require_device_library().make_engine(world, options) : make_host_engine(world, options);
      })) {}

const EngineOptions& Engine::options() const { return impl_->options; }
Memory Engine::memory() const { return impl_->memory(); }
Stream Engine::stream() const { return impl_->stream(); }
void Engine::check() const {
  impl_->named([&] { impl_->check(); });
}
const std::uint32_t* Engine::fault_word() const { return impl_->fault_word(); }

namespace {

void check_plan_call(const Engine::Impl& engine, const Routing& routing, const ExpertMap& map,
                     const PlanOptions& options) {
  const Call call = engine.call("plan");
  call.demand(options.layout != Layout::token_unique || engine.options.reduction != Reduction::flat,
              "token_unique sums per rank; reduction = flat needs expert_major or padded");
  if (options.layout == Layout::padded) call.require(Feature::padded);
  if (options.stream) call.require(Feature::streams);
  if (options.max_rows != 0 || options.overflow != Overflow::fault || is_given(options.rows) ||
      is_given(options.row_scales))
    call.require(Feature::bounds);
  if (!routing.memory.is_host()) call.require(Feature::device_inputs);
  for (const auto& [name, size, data] :
       {std::tuple("experts", routing.experts.size(), routing.experts.data()),
        std::tuple("weights", routing.weights.size(), static_cast<const void*>(routing.weights.data()))})
    call.demand(size == 0 || data, "the routing has {} {} without data", size, name);
  engine.check_trace(routing, map);
}

}  // namespace

Plan Engine::plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options) {
  check_plan_call(*impl_, routing, map, options);
  return impl_->named([&] { return impl_->plan(routing, map, options); });
}

Ticket<Plan> Engine::start_plan(const Routing& routing, const ExpertMap& map, const PlanOptions& options) {
  check_plan_call(*impl_, routing, map, options);
  return impl_->named([&] { return impl_->start_plan(routing, map, options); });
}

Ticket<Rows> Engine::dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& options) {
  Impl& engine = *impl_;
  const Call call = engine.call("dispatch");
  const PlanData& data = engine.check_plan(call, plan);
  const bool has_out = is_given(options.out), has_out_scales = is_given(options.out_scales);
  if (options.stream) call.require(Feature::streams);
  if (!x.memory.is_host()) call.require(Feature::device_inputs);
  engine.checks().dispatch_input(call, data.num_tokens, x, options.scales);
  engine.checks().out_scales(call, options.out_scales, data.num_rows());
  if (!options.scales.memory.is_host()) call.require(Feature::device_inputs);
  if (data.options.layout == Layout::padded) {
    if (is_given(options.scales)) call.require(Feature::padded_scales);
    if (has_out || has_out_scales) call.require(Feature::padded_outputs);
  }
  if (has_out) {
    engine.check_tensor(call, "out", options.out, engine.options.dtype, data.num_rows());
    engine.check_place(call, "out", options.out, x);
    check_apart(call, "out", options.out, options.scales);
  }
  if (has_out_scales) {
    engine.check_place(call, "out_scales", options.out_scales, options.scales);
    check_apart(call, "out_scales", options.out_scales, x);
    check_apart(call, "out_scales", options.out_scales, options.out);
  }
  call.demand(!is_given(data.options.rows) || !(has_out || has_out_scales),
              "the plan was given rows, so it takes no out");
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
  const Call call = engine.call("combine_backward");
  const PlanData& data = engine.check_plan(call, plan);
  if (options.stream) call.require(Feature::streams);
  check_gradients(call, data);
  call.demand(!is_given(options.out), "it delivers gradients in tensors of its own and takes no out");
  const bool has_weights = data.options.layout != Layout::token_unique;
  const DType expert_dtype = *engine.options.expert_dtype;
  engine.check_tensor(call, "grad_out", grad_out, *engine.options.result_dtype, data.num_tokens);
  if (has_weights) engine.check_tensor(call, "expert_out", expert_out, expert_dtype, data.num_rows());
  if (!grad_out.memory.is_host() || !expert_out.memory.is_host()) call.require(Feature::device_inputs);
  return engine.named([&]() -> Ticket<Gradients> {
    Gradients gradients{engine.allocate(expert_dtype, data.num_rows(), engine.options.hidden), {}};
    if (has_weights) gradients.weights = engine.allocate(f32, data.num_tokens, data.topk);
    auto pending = engine.start(
        Impl::Backward{plan, grad_out, has_weights ? expert_out : ConstTensor(), gradients, options.stream});
    return {std::move(pending), std::move(gradients)};
  });
}

Tensor Engine::expert_out(const Plan& plan) const {
  const PlanData& data = impl_->check_plan(impl_->call("expert_out"), plan);
  return impl_->named([&] { return impl_->expert_out(data); });
}

Tensor Engine::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 56;
  impl_->call("engine").demand(rows >= 0 && cols >= 0 && (rows == 0 || cols <= kMostBytes / 4 / rows),
                               "can't allocate [{}, {}]", rows, cols);
  return impl_->named([&] { return impl_->allocate(dtype, rows, cols); });
}

void Engine::copy(const ConstTensor& from, const Tensor& to) const {
  const Call call = impl_->call("copy");
  call.demand(from.dtype == to.dtype && from.rows == to.rows && from.cols == to.cols, "from {} [{}, {}] to {} [{}, {}]",
              to_string(from.dtype), from.rows, from.cols, to_string(to.dtype), to.rows, to.cols);
  call.demand(from.bytes() == 0 || (from.data && to.data), "a tensor has no data");
  if (!from.memory.is_host() || !to.memory.is_host()) call.require(Feature::device_inputs);
  impl_->named([&] { impl_->copy(from, to); });
}

void Engine::leave_out(std::span<const RankId> ranks) {
  impl_->call("leave_out").require(Feature::leaving_out);
  impl_->named([&] { impl_->leave_out(ranks); });
}

std::optional<RankId> Engine::missing() const { return impl_->missing(); }

}  // namespace shunt
