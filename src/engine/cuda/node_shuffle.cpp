// The operations on rows of the engine on devices of one node, but for `padded`.
#include "core/cuda/on_device.hpp"
#include "engine/cuda/node_engine.hpp"
#include "engine/cuda/row_kernels.hpp"
#include "kernels/cuda/dot_rows.hpp"
#include "kernels/cuda/quantise_rows.hpp"
#include "kernels/cuda/scale_rows.hpp"

namespace shunt {

using device::Phase;
using device::region_of;

Ticket<Rows> NodeEngine::dispatch(const Plan& plan, const ConstTensor& x, const DispatchOptions& dispatch_options) {
  const NodePlan& data = data_of(plan);
  if (data.padded) return dispatch_padded(plan, x, dispatch_options.stream);
  require_all_ranks("dispatch");
  const device::OnDevice scope(memory().device);
  const auto& [given_scales, given_out, given_out_scales, callers] = dispatch_options;
  const bool has_rows = is_given(data.options.rows);
  // In one capture with the plan, and right behind it.
  const bool are_published =
      has_rows && just_planned_.plan == &data && just_planned_.capture && just_planned_.capture == capture_id();
  start_after(callers);
  Tensor out = has_rows ? data.options.rows : given_out;
  Tensor scales = has_rows ? data.options.row_scales : given_out_scales;
  if (!is_given(out)) out = allocate(options.dtype, data.num_rows(), options.hidden);
  if (has_scales() && !is_given(scales)) scales = allocate(f32, data.num_rows(), checks().num_scales());
  const ConstTensor sent = readable("dispatch", x);
  const ConstTensor sent_scales = readable("dispatch", given_scales);
  const Tensor received = writable_by_peers("dispatch", out);
  const Tensor received_scales = has_scales() ? writable_by_peers("dispatch", scales) : Tensor();
  if (!are_published) begin_barrier({OpKind::dispatch, Phase::begin, data.hash}, received.data, received_scales.data);
  send(data, sent, sent_scales, are_published ? data.arrays.published : control_.published);
  zero_padding(data, received);
  if (has_scales()) zero_padding(data, received_scales);
  end_barrier({OpKind::dispatch, Phase::end, data.hash},
              {.outputs = {region_of(received), region_of(received_scales)}});
  deliver(received, out);
  deliver(received_scales, scales);
  return {submit(callers, {x, given_scales}), {.data = out, .scales = scales, .plan = plan}};
}

void NodeEngine::send(const NodePlan& plan, const ConstTensor& x, const ConstTensor& scales,
                      std::byte* const* published) const {
  const std::uint32_t* const stop = &control_.state->fault;
  if (!has_scales())
    return device::launch_copy(plan.shape, plan.arrays, x, published, stop, options.device->sms, cuda_stream);
  device::launch(device::QuantiseRows{.x = x.data,
                                      .scales = reinterpret_cast<const float*>(scales.data),
                                      .rows = published,
                                      .row_scales = published + num_ranks(),
                                      .terms = plan.arrays.terms,
                                      .num_tokens = plan.shape.num_tokens,
                                      .topk = plan.shape.topk,
                                      .hidden = options.hidden,
                                      .x_dtype = x.dtype,
                                      .stop = stop},
                 cuda_stream);
}

std::shared_ptr<Pending> NodeEngine::start(const Pull& pull) {
  const NodePlan& data = data_of(pull.plan);
  if (data.padded) return combine_padded(pull);
  require_all_ranks(to_string(pull.kind));
  const device::OnDevice scope(memory().device);
  start_after(pull.stream);
  const ConstTensor published = publish(to_string(pull.kind), pull.rows);
  begin_barrier({pull.kind, Phase::begin, data.hash}, published.data);
  device::launch_sum({.rows = control_.published,
                      .result = pull.out.data,
                      .terms = data.arrays.terms,
                      .num_tokens = data.shape.num_tokens,
                      .topk = data.shape.topk,
                      .hidden = options.hidden,
                      .row_dtype = *options.expert_dtype,
                      .wire_dtype = *options.wire_dtype,
                      .result_dtype = *options.result_dtype,
                      .weighted = pull.kind == OpKind::combine,
                      .stop = &control_.state->fault},
                     options.device->sms, cuda_stream);
  end_barrier({pull.kind, Phase::end, data.hash}, {.outputs = {region_of(pull.out)}});
  return submit(pull.stream, {pull.rows});
}

std::shared_ptr<Pending> NodeEngine::start(const Backward& backward) {
  const NodePlan& data = data_of(backward.plan);
  const auto& [rows, weights] = backward.gradients;
  const bool has_weights = !data.shape.unique;
  require_all_ranks("combine_backward");
  const device::OnDevice scope(memory().device);
  start_after(backward.stream);
  const ConstTensor grad_out = readable("combine_backward", backward.grad_out);
  const ConstTensor published = has_weights ? publish("combine_backward", backward.expert_out) : ConstTensor();
  const std::uint32_t* const stop = &control_.state->fault;
  begin_barrier({OpKind::combine_backward, Phase::begin, data.hash}, rows.data, published.data);
  device::launch(device::ScaleRows{.x = grad_out.data,
                                   .out = control_.published,
                                   .segments = data.arrays.segments,
                                   .num_segments = data.shape.num_segments(),
                                   .hidden = options.hidden,
                                   .x_dtype = *options.result_dtype,
                                   .out_dtype = *options.expert_dtype,
                                   .stop = stop},
                 cuda_stream);
  if (has_weights)
    device::launch(device::DotRows{.x = grad_out.data,
                                   .rows = control_.published + num_ranks(),
                                   .terms = data.arrays.terms,
                                   .result = reinterpret_cast<float*>(weights.data),
                                   .num_tokens = data.shape.num_tokens,
                                   .topk = data.shape.topk,
                                   .hidden = options.hidden,
                                   .x_dtype = *options.result_dtype,
                                   .row_dtype = *options.expert_dtype,
                                   .stop = stop},
                   cuda_stream);
  zero_padding(data, rows);
  end_barrier({OpKind::combine_backward, Phase::end, data.hash}, {.outputs = {region_of(rows), region_of(weights)}});
  return submit(backward.stream, {backward.grad_out, backward.expert_out});
}

}  // namespace shunt
