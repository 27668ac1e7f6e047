#include "shunt/device_cluster_engine.hpp"

#include <algorithm>
#include <exception>

#include "core/cuda/on_device.hpp"
#include "core/fail.hpp"
#include "engine/cuda/cluster/combine.hpp"
#include "engine/cuda/cluster/combine_backward.hpp"
#include "engine/cuda/cluster/cuda_lane.hpp"
#include "engine/cuda/cluster/dispatch.hpp"
#include "engine/cuda/cluster/engine_impl.hpp"
#include "shunt/routing.hpp"

namespace shunt {
namespace {

/// For whoever has an Error to tell already.
void finish_or_fail(device::Lane& lane) noexcept {
  try {
    lane.finish();
  } catch (const Error&) {  // NOLINT: a device that has failed runs nothing any more
  }
}

class HostPending final : public DevicePending {
 public:
  HostPending(std::shared_ptr<Pending> pending, std::shared_ptr<device::Lane> lane, const Announcement& announcement)
      : pending_(std::move(pending)), lane_(std::move(lane)), announcement_(announcement) {}
  /// As ~Ticket: what is launched later, and on another stream, uses the caller's memory until the operation is over.
  ~HostPending() override {
    try {
      if (std::uncaught_exceptions() > exceptions_at_birth_) pending_->abandon();
      wait();
    } catch (...) {  // NOLINT: whoever drops a ticket does not ask how it ended
    }
  }
  HostPending(const HostPending&) = delete;
  HostPending& operator=(const HostPending&) = delete;

  void wait() override {
    try {
      pending_->wait();
    } catch (const Error&) {
      finish_or_fail(*lane_);  // what this rank has launched still reads the caller's inputs and writes its outputs
      for (const std::uint64_t offset : {announcement_.offset, announcement_.second_offset})
        if (offset != 0) lane_->keep(offset);  // what others have launched may not have run yet
      throw;
    }
  }
  void wait_on(Stream) override { wait(); }

 private:
  std::shared_ptr<Pending> pending_;
  std::shared_ptr<device::Lane> lane_;
  Announcement announcement_;
  int exceptions_at_birth_ = std::uncaught_exceptions();
};

}  // namespace

DeviceClusterEngine::Impl::Impl(Engine host_engine, std::shared_ptr<device::Lane> device_lane,
                                std::shared_ptr<device::NcclNetwork> nccl_network)
    : host(std::move(host_engine)), lane(std::move(device_lane)), nccl(std::move(nccl_network)) {}

std::size_t DeviceClusterEngine::Impl::most_segment_bytes(const EngineOptions& options) {
  // Every dtype's row is at most f32's; and the gradients of one token's weights.
  return std::max(static_cast<std::size_t>(options.hidden), static_cast<std::size_t>(Routing::kMaxTopK)) *
         sizeof(float);
}

const PlanData& DeviceClusterEngine::Impl::check_plan(const DeviceClusterPlan& plan, std::string_view operation) const {
  return engine().check_plan(plan.data() ? plan.host() : Plan(), operation);
}

device::SumOrder DeviceClusterEngine::Impl::sum_order() const {
  if (options().reduction == Reduction::flat) return device::SumOrder::flat;
  const bool is_mixed = engine().world->group->has_far() && options().wire_dtype != options().expert_dtype;
  return is_mixed ? device::SumOrder::mixed : device::SumOrder::tree;
}

Tensor DeviceClusterEngine::Impl::allocate(DType dtype, std::int64_t rows, std::int64_t cols) const {
  Tensor tensor{nullptr, dtype, rows, cols, nullptr};
  const auto block = lane->allocate(tensor.bytes());
  tensor.data = block.get();
  tensor.owner = block;
  return tensor;
}

Tensor DeviceClusterEngine::Impl::for_peers(const ConstTensor& tensor) const {
  if (tensor.data && lane->offset_of(tensor.data, tensor.bytes()))
    return {const_cast<std::byte*>(tensor.data), tensor.dtype, tensor.rows, tensor.cols, tensor.owner};
  return allocate(tensor.dtype, tensor.rows, tensor.cols);
}

std::uint64_t DeviceClusterEngine::Impl::offset_of(const Tensor& tensor) const {
  return tensor.data ? *lane->offset_of(tensor.data, tensor.bytes()) : 0;
}

Tensor DeviceClusterEngine::Impl::output(std::string_view operation, const Tensor& given, DType dtype,
                                         std::int64_t rows) const {
  if (!is_given(given)) return allocate(dtype, rows, options().hidden);
  check_tensor(operation, "out", given, dtype, rows);
  return given;
}

Tensor DeviceClusterEngine::Impl::output_scales(const Tensor& given, std::int64_t rows) const {
  checks().out_scales(given, rows);
  return is_given(given) || !checks().has_scales() ? given : allocate(f32, rows, checks().num_scales());
}

device::ClusterDispatch::Output DeviceClusterEngine::Impl::delivery(const Tensor& out) const {
  const Tensor received = for_peers(out);
  return {received, received.data == out.data ? Tensor{} : out};
}

device::ClusterShuffle::Place DeviceClusterEngine::Impl::place(const DeviceClusterPlan& plan, Stream stream) const {
  return {lane, plan.data(), lane->mark(stream), nccl, nccl ? nccl->take_turn() : nullptr};
}

template <class Op>
std::shared_ptr<DevicePending> DeviceClusterEngine::Impl::issue(const DeviceClusterPlan& plan,
                                                                const Announcement& announcement,
                                                                typename Op::Inputs inputs) {
  try {
    return std::make_shared<HostPending>(engine().issue<Op>(plan.host(), announcement, std::move(inputs)), lane,
                                         announcement);
  } catch (...) {
    finish_or_fail(*lane);  // it may have been prepared before it was refused
    throw;
  }
}

DeviceClusterEngine::DeviceClusterEngine(World& world, const DeviceHeap& heap, const DeviceClusterOptions& options) {
  const device::OnDevice scope(heap.device());  // NCCL's communicators are of the current one
  Engine host(world, options.engine);
  if (const Companions& companions = options.engine.companions; companions.ids || companions.weights)
    fail(ErrorCode::unsupported, "rank {}: device cluster engine: companions are for hosts", world.rank());
  const auto& fabric = host.impl()->world->fabric;
  auto lane = std::make_shared<device::CudaLane>(
      fabric->transport(), *host.impl()->world->group, heap.impl(),
      device::BufferLimits{std::max(options.batch_bytes, Impl::most_segment_bytes(options.engine)),
                           options.num_batches});
  std::shared_ptr<device::NcclNetwork> nccl;
  if (options.network == DeviceNetwork::nccl)
    nccl = device::NcclNetwork::join(world, lane->buffer_bytes(),
                                     [&](std::size_t bytes) { return lane->allocate(bytes); });
  impl_ = std::make_shared<Impl>(std::move(host), std::move(lane), std::move(nccl));
}

DeviceClusterPlan DeviceClusterEngine::plan(const DeviceRouting& routing, const ExpertMap& map,
                                            const PlanOptions& options, Stream stream) {
  Impl& impl = *impl_;
  const RankId rank = impl.engine().rank();
  if (options.layout == Layout::padded)
    fail(ErrorCode::unsupported, "rank {}: plan: padded rows are for hosts and for DeviceDecoder", rank);
  if (routing.num_tokens < 0 || routing.topk < 1 || (routing.num_tokens > 0 && !routing.experts))
    fail(ErrorCode::invalid_argument, "rank {}: plan: a routing of {} tokens, top-{}", rank, routing.num_tokens,
         routing.topk);
  const auto num_entries = static_cast<std::size_t>(routing.num_tokens) * static_cast<std::size_t>(routing.topk);
  std::vector<std::int32_t> experts(num_entries);
  std::vector<float> weights(routing.weights ? num_entries : 0);
  impl.lane->wait_for(stream);
  impl.lane->download(std::as_writable_bytes(std::span(experts)), reinterpret_cast<const std::byte*>(routing.experts));
  impl.lane->download(std::as_writable_bytes(std::span(weights)), reinterpret_cast<const std::byte*>(routing.weights));

  const Plan host = impl.host.plan({experts, weights, routing.topk}, map, options);
  device::PlanLists lists(*host.data(), impl.sum_order());
  const auto block = impl.lane->allocate(lists.block.size());
  impl.lane->upload(block.get(), lists.block);
  lists.block = {};
  return DeviceClusterPlan(
      std::make_shared<const DeviceClusterPlanData>(DeviceClusterPlanData{host, std::move(lists), block}));
}

DeviceTicket<DeviceRows> DeviceClusterEngine::dispatch(const DeviceClusterPlan& plan, const ConstTensor& x,
                                                       const DeviceDispatchOptions& options) {
  Impl& impl = *impl_;
  const PlanData& data = impl.check_plan(plan, "dispatch");
  const DType dtype = impl.options().dtype;
  impl.checks().dispatch_input(data.num_tokens, x, options.scales);
  const Tensor out = impl.output("dispatch", options.out, dtype, data.num_rows());
  const Tensor out_scales = impl.output_scales(options.out_scales, data.num_rows());
  if (is_given(options.out)) impl.engine().check_apart("dispatch", x, out);
  device::ClusterDispatch::Inputs inputs{.place = impl.place(plan, options.stream),
                                         .x = x,
                                         .scales = options.scales,
                                         .to_quantise = {},
                                         .rows = impl.delivery(out),
                                         .row_scales = {}};
  if (impl.checks().has_scales()) {
    inputs.row_scales = impl.delivery(out_scales);
    inputs.scales.cols = out_scales.cols;  // also where there are no tokens
  }
  if (x.dtype != dtype) {
    inputs.to_quantise = x;
    inputs.x = impl.allocate(dtype, x.rows, x.cols);
    inputs.scales = impl.allocate(f32, x.rows, out_scales.cols);
  }
  const Tensor& rows = inputs.rows.received;
  const Announcement announcement{OpKind::dispatch, data.hash, impl.offset_of(rows), rows.bytes(),
                                  impl.offset_of(inputs.row_scales.received)};
  return {impl.issue<device::ClusterDispatch>(plan, announcement, std::move(inputs)), {out, out_scales}};
}

DeviceTicket<Tensor> DeviceClusterEngine::combine(const DeviceClusterPlan& plan, const ConstTensor& expert_out,
                                                  const DeviceCombineOptions& options) {
  return impl_->pull(OpKind::combine, plan, expert_out, options);
}

DeviceTicket<Tensor> DeviceClusterEngine::dispatch_backward(const DeviceClusterPlan& plan, const ConstTensor& grad_rows,
                                                            const DeviceCombineOptions& options) {
  return impl_->pull(OpKind::dispatch_backward, plan, grad_rows, options);
}

DeviceTicket<Tensor> DeviceClusterEngine::Impl::pull(OpKind kind, const DeviceClusterPlan& plan,
                                                     const ConstTensor& rows,
                                                     const DeviceCombineOptions& pull_options) {
  const auto name = to_string(kind);
  const PlanData& data = check_plan(plan, name);
  check_tensor(name, kind == OpKind::combine ? "expert_out" : "grad_rows", rows, *options().expert_dtype,
               data.num_rows());
  const Tensor out = output(name, pull_options.out, *options().result_dtype, data.num_tokens);
  if (is_given(pull_options.out)) engine().check_apart(name, rows, out);
  const Tensor shown = for_peers(rows);
  const Announcement announcement{kind, data.hash, offset_of(shown), shown.bytes(), 0};
  device::ClusterCombine::Inputs inputs{place(plan, pull_options.stream),
                                        rows,
                                        shown,
                                        {*options().expert_dtype, *options().wire_dtype, *options().result_dtype},
                                        sum_order(),
                                        kind == OpKind::combine,
                                        out};
  return {issue<device::ClusterCombine>(plan, announcement, std::move(inputs)), out};
}

DeviceTicket<DeviceGradients> DeviceClusterEngine::combine_backward(const DeviceClusterPlan& plan,
                                                                    const ConstTensor& grad_out,
                                                                    const ConstTensor& expert_out, Stream stream) {
  Impl& impl = *impl_;
  const PlanData& data = impl.check_plan(plan, "combine_backward");
  const DType expert_dtype = *impl.options().expert_dtype;
  const bool has_weights = data.options.layout != Layout::token_unique;
  impl.check_tensor("combine_backward", "grad_out", grad_out, *impl.options().result_dtype, data.num_tokens);
  if (has_weights) impl.check_tensor("combine_backward", "expert_out", expert_out, expert_dtype, data.num_rows());
  DeviceGradients gradients{impl.allocate(expert_dtype, data.num_rows(), impl.options().hidden), {}};
  if (has_weights) gradients.weights = impl.allocate(f32, data.num_tokens, data.topk);
  const Tensor shown = has_weights ? impl.for_peers(expert_out) : Tensor{};
  const Announcement announcement{OpKind::combine_backward, data.hash, impl.offset_of(gradients.expert_out),
                                  gradients.expert_out.bytes(), impl.offset_of(shown)};
  device::ClusterCombineBackward::Inputs inputs{
      impl.place(plan, stream), grad_out,         has_weights ? expert_out : shown, shown,
      gradients.expert_out,     gradients.weights};
  return {impl.issue<device::ClusterCombineBackward>(plan, announcement, std::move(inputs)), gradients};
}

Tensor DeviceClusterEngine::expert_out(const DeviceClusterPlan& plan) const {
  const PlanData& data = impl_->check_plan(plan, "expert_out");
  return impl_->allocate(*impl_->options().expert_dtype, data.num_rows(), impl_->options().hidden);
}

const Plan& DeviceClusterPlan::host() const { return data_->host; }

namespace {

template <class T>
const T* find(const DeviceClusterPlanData& plan, const device::ListIn<T>& list) {
  return list.at(plan.block.get());
}

}  // namespace

const std::int32_t* DeviceClusterPlan::expert_offsets() const { return find(*data_, data_->lists.expert_offsets); }
const std::int32_t* DeviceClusterPlan::expert_counts() const { return find(*data_, data_->lists.expert_counts); }
const std::int32_t* DeviceClusterPlan::unique_of_expert_row() const {
  return find(*data_, data_->lists.unique_of_expert_row);
}
const std::int32_t* DeviceClusterPlan::expert_rows_of_unique() const {
  return find(*data_, data_->lists.expert_rows_of_unique);
}
const std::int32_t* DeviceClusterPlan::unique_experts() const { return find(*data_, data_->lists.unique_experts); }
const float* DeviceClusterPlan::unique_weights() const { return find(*data_, data_->lists.unique_weights); }

}  // namespace shunt
