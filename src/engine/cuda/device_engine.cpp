#include "shunt/device_engine.hpp"

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "engine/cuda/engine_impl.hpp"
#include "engine/cuda/row_kernels.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"

namespace shunt {

using device::Phase;

DeviceEngine::DeviceEngine(World& world, const DeviceHeap& heap, const DeviceEngineOptions& options)
    : impl_(std::make_shared<Impl>(world, heap, options)) {}

Stream DeviceEngine::stream() const { return impl_->stream; }

Tensor DeviceEngine::expert_out(const DevicePlan& plan) const {
  const DevicePlanData& data = impl_->check_plan(plan, "expert_out");
  return impl_->allocate(*impl_->options.expert_dtype, data.num_rows);
}

DeviceTicket<DeviceRows> DeviceEngine::dispatch(const DevicePlan& plan, const ConstTensor& x,
                                                const DeviceDispatchOptions& options) {
  Impl& engine = *impl_;
  const DevicePlanData& data = engine.check_plan(plan, "dispatch");
  engine.checks().dispatch_input(data.shape.num_tokens, x, options.scales);
  const bool has_rows = is_given(data.options.rows);
  if (has_rows && (is_given(options.out) || is_given(options.out_scales)))
    fail(ErrorCode::invalid_argument, "rank {}: dispatch: the plan was given rows, so it takes no out", engine.self);
  const Tensor out =
      has_rows ? data.options.rows : engine.output("dispatch", options.out, engine.options.dtype, data.num_rows);
  const Tensor scales = has_rows ? data.options.row_scales : engine.output_scales(options.out_scales, data.num_rows);

  const device::OnDevice scope(engine.device());
  const bool are_shown = engine.are_rows_shown(data);
  engine.start_after(options.stream);
  const Tensor received = engine.writable_by_peers("dispatch", out);
  const Tensor received_scales = engine.has_scales() ? engine.writable_by_peers("dispatch", scales) : Tensor();
  if (!are_shown) engine.meet({OpKind::dispatch, Phase::begin, data.hash}, received.data, received_scales.data);
  engine.send(data, x, options.scales, are_shown ? data.arrays.shown : engine.control.shown);
  engine.zero_padding(data, received);
  if (engine.has_scales()) engine.zero_padding(data, received_scales);
  engine.meet({OpKind::dispatch, Phase::end, data.hash});
  engine.deliver(received, out);
  engine.deliver(received_scales, scales);
  return {engine.pending(), {out, scales}};
}

void DeviceEngine::Impl::send(const DevicePlanData& plan, const ConstTensor& x, const ConstTensor& scales,
                              std::byte* const* shown) const {
  if (!has_scales()) return device::launch_copy(plan, x, shown, &control.progress->fault, {options.sms, stream});
  device::launch(device::QuantiseRows{.x = x.data,
                                      .scales = reinterpret_cast<const float*>(scales.data),
                                      .rows = shown,
                                      .row_scales = shown + heap->num_ranks,
                                      .terms = plan.arrays.terms,
                                      .num_tokens = plan.shape.num_tokens,
                                      .topk = plan.shape.topk,
                                      .hidden = options.hidden,
                                      .x_dtype = x.dtype,
                                      .stop = &control.progress->fault},
                 stream);
}

DeviceTicket<Tensor> DeviceEngine::combine(const DevicePlan& plan, const ConstTensor& expert_out,
                                           const DeviceCombineOptions& options) {
  return impl_->pull(OpKind::combine, plan, expert_out, options);
}

DeviceTicket<Tensor> DeviceEngine::dispatch_backward(const DevicePlan& plan, const ConstTensor& grad_rows,
                                                     const DeviceCombineOptions& options) {
  return impl_->pull(OpKind::dispatch_backward, plan, grad_rows, options);
}

DeviceTicket<Tensor> DeviceEngine::Impl::pull(OpKind kind, const DevicePlan& plan, const ConstTensor& rows,
                                              const DeviceCombineOptions& pull_options) {
  const auto name = to_string(kind);
  const DevicePlanData& data = check_plan(plan, name);
  check_tensor(name, kind == OpKind::combine ? "expert_out" : "grad_rows", rows, *options.expert_dtype, data.num_rows);
  const Tensor out = output(name, pull_options.out, *options.result_dtype, data.shape.num_tokens);

  const device::OnDevice scope(device());
  start_after(pull_options.stream);
  const ConstTensor shown = show_to_peers(name, rows);
  meet({kind, Phase::begin, data.hash}, shown.data);
  device::launch_sum({.rows = control.shown,
                      .result = out.data,
                      .terms = data.arrays.terms,
                      .num_tokens = data.shape.num_tokens,
                      .topk = data.shape.topk,
                      .hidden = options.hidden,
                      .row_dtype = *options.expert_dtype,
                      .wire_dtype = *options.wire_dtype,
                      .result_dtype = *options.result_dtype,
                      .weighted = kind == OpKind::combine,
                      .stop = &control.progress->fault},
                     {options.sms, stream});
  meet({kind, Phase::end, data.hash});
  return {pending(), out};
}

DeviceTicket<DeviceGradients> DeviceEngine::combine_backward(const DevicePlan& plan, const ConstTensor& grad_out,
                                                             const ConstTensor& expert_out, Stream stream) {
  Impl& engine = *impl_;
  const DevicePlanData& data = engine.check_plan(plan, "combine_backward");
  const DType expert_dtype = *engine.options.expert_dtype;
  const DType result_dtype = *engine.options.result_dtype;
  const bool has_weights = !data.shape.unique;
  engine.check_tensor("combine_backward", "grad_out", grad_out, result_dtype, data.shape.num_tokens);
  if (has_weights) engine.check_tensor("combine_backward", "expert_out", expert_out, expert_dtype, data.num_rows);
  DeviceGradients gradients{engine.allocate(expert_dtype, data.num_rows), {}};
  if (has_weights) gradients.weights = engine.allocate(f32, data.shape.num_tokens, data.shape.topk);

  const device::OnDevice scope(engine.device());
  engine.start_after(stream);
  const ConstTensor shown = has_weights ? engine.show_to_peers("combine_backward", expert_out) : ConstTensor();
  const std::uint32_t* stop = &engine.control.progress->fault;
  engine.meet({OpKind::combine_backward, Phase::begin, data.hash}, gradients.expert_out.data, shown.data);
  device::launch(device::ScaleRows{.x = grad_out.data,
                                   .out = engine.control.shown,
                                   .segments = data.arrays.segments,
                                   .num_segments = data.shape.num_segments(),
                                   .hidden = engine.options.hidden,
                                   .x_dtype = result_dtype,
                                   .out_dtype = expert_dtype,
                                   .stop = stop},
                 engine.stream);
  if (has_weights)
    device::launch(device::DotRows{.x = grad_out.data,
                                   .rows = engine.control.shown + engine.heap->num_ranks,
                                   .terms = data.arrays.terms,
                                   .result = reinterpret_cast<float*>(gradients.weights.data),
                                   .num_tokens = data.shape.num_tokens,
                                   .topk = data.shape.topk,
                                   .hidden = engine.options.hidden,
                                   .x_dtype = result_dtype,
                                   .row_dtype = expert_dtype,
                                   .stop = stop},
                   engine.stream);
  engine.zero_padding(data, gradients.expert_out);
  engine.meet({OpKind::combine_backward, Phase::end, data.hash});
  return {engine.pending(), gradients};
}

}  // namespace shunt
