// The engine on devices of several nodes: the host drives, as for host memory, and kernels move rows.
#include <algorithm>
#include <string_view>
#include <vector>

#include "core/cuda/on_device.hpp"
#include "engine/cuda/cluster/combine.hpp"
#include "engine/cuda/cluster/combine_backward.hpp"
#include "engine/cuda/cluster/dispatch.hpp"
#include "engine/cuda/library.hpp"
#include "engine/host_driven_engine.hpp"
#include "shunt/routing.hpp"

namespace shunt {
namespace {

class ClusterEngine final : public HostDrivenEngine {
 public:
  /// `nccl`: null if the world's own network is used.
  ClusterEngine(World& engine_world, const EngineOptions& engine_options, std::shared_ptr<device::Lane> lane,
                std::shared_ptr<device::NcclNetwork> nccl)
      : HostDrivenEngine(engine_world, engine_options, EngineKind::cluster),
        lane_(std::move(lane)),
        nccl_(std::move(nccl)) {
    options.device->index = memory().device;
    if (!options.device->stream) options.device->stream = lane_->stream();
  }

  [[nodiscard]] Memory memory() const override { return lane_->memory(); }
  [[nodiscard]] Stream stream() const override { return options.device->stream; }
  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    return lane_->allocate(dtype, rows, cols);
  }

  void copy(const ConstTensor& from, const Tensor& to) const override {
    require_here(from.memory, "copy");
    require_here(to.memory, "copy");
    lane_->wait_for(before(nullptr));
    lane_->finish();
    lane_->copy(from, to);
  }

  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) override {
    Routing here = routing;
    std::vector<std::byte> ids;
    std::vector<float> weights;
    require_here(routing.memory, "plan");
    lane_->wait_for(before(plan_options.stream));  // work there may still use memory that the lists reuse
    if (!routing.memory.is_host()) {
      ids.resize(routing.experts.size_bytes());
      weights.resize(routing.weights.size());
      lane_->copy(ids.data(), routing.experts.data(), ids.size());
      lane_->copy(weights.data(), routing.weights.data(), routing.weights.size_bytes());
      here.experts = routing.experts.at(ids.data());
      here.weights = weights;
      here.memory = Memory::host();
    }
    auto data = std::make_shared<ClusterPlan>(std::move(*make_plan(here, map, plan_options)), sum_order());
    data->block = lane_->allocate(data->lists.block.size());
    lane_->copy(data->block.get(), data->lists.block.data(), data->lists.block.size());
    data->lists.block = {};
    return Plan(data);
  }

  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                      const DispatchOptions& dispatch_options) override {
    const PlanData& data = *plan.data();
    const auto& [scales, given, given_scales, callers] = dispatch_options;
    const Tensor out = is_given(given) ? given : allocate(options.dtype, data.num_rows(), options.hidden);
    const Tensor out_scales =
        is_given(given_scales) || !has_scales() ? given_scales : allocate(f32, data.num_rows(), checks().num_scales());
    device::ClusterDispatch::Inputs inputs{.place = {},
                                           .x = readable(x, callers),
                                           .scales = readable(scales, callers),
                                           .to_quantise = {},
                                           .rows = delivery(out),
                                           .row_scales = {}};
    if (has_scales()) {
      inputs.row_scales = delivery(out_scales);
      inputs.scales.cols = out_scales.cols;  // even without tokens
    }
    if (x.dtype != options.dtype) {
      inputs.to_quantise = inputs.x;
      inputs.x = allocate(options.dtype, x.rows, x.cols);
      inputs.scales = allocate(f32, x.rows, out_scales.cols);
    }
    inputs.place = place(plan, callers);
    const Tensor& rows = inputs.rows.received;
    const Announcement announcement{OpKind::dispatch, data.hash, offset_of(rows), rows.bytes(),
                                    offset_of(inputs.row_scales.received)};
    return {launch<device::ClusterDispatch>(plan, announcement, std::move(inputs)),
            {.data = out, .scales = out_scales, .plan = plan}};
  }

  [[nodiscard]] std::shared_ptr<Pending> start(const Pull& pull) override {
    const ConstTensor rows = readable(pull.rows, pull.stream);
    const Tensor published = for_peers(rows);
    const Announcement announcement{pull.kind, pull.plan.data()->hash, offset_of(published), published.bytes(), 0};
    return launch<device::ClusterCombine>(pull.plan, announcement,
                                          {place(pull.plan, pull.stream),
                                           rows,
                                           published,
                                           {*options.expert_dtype, *options.wire_dtype, *options.result_dtype},
                                           sum_order(),
                                           pull.kind == OpKind::combine,
                                           pull.out});
  }

  [[nodiscard]] std::shared_ptr<Pending> start(const Backward& backward) override {
    const auto& [rows, weights] = backward.gradients;
    const bool has_weights = backward.plan.layout() != Layout::token_unique;
    const ConstTensor grad_out = readable(backward.grad_out, backward.stream);
    const ConstTensor expert_out = has_weights ? readable(backward.expert_out, backward.stream) : ConstTensor();
    const Tensor published = has_weights ? for_peers(expert_out) : Tensor();
    const Announcement announcement{OpKind::combine_backward, backward.plan.data()->hash, offset_of(rows), rows.bytes(),
                                    offset_of(published)};
    return launch<device::ClusterCombineBackward>(
        backward.plan, announcement,
        {place(backward.plan, backward.stream), grad_out, expert_out, published, rows, weights});
  }

 private:
  /// The stream whose work precedes an operation: the caller's, or else the engine's.
  [[nodiscard]] Stream before(Stream callers) const { return callers ? callers : options.device->stream; }

  void require_here(Memory where, std::string_view operation) const {
    if (!where.is_host() && where != memory()) call(operation).require(Feature::other_devices);
  }

  [[nodiscard]] device::SumOrder sum_order() const {
    if (options.reduction == Reduction::flat) return device::SumOrder::flat;
    const bool is_mixed = world->group->has_far() && options.wire_dtype != options.expert_dtype;
    return is_mixed ? device::SumOrder::mixed : device::SumOrder::tree;
  }

  /// The tensor itself if kernels can read it, else a copy, for which the host waits.
  [[nodiscard]] ConstTensor readable(const ConstTensor& tensor, Stream callers) const {
    if (tensor.bytes() == 0 || (tensor.memory == memory() && tensor.is_contiguous())) return tensor;
    lane_->wait_for(before(callers));
    const Tensor copied = allocate(tensor.dtype, tensor.rows, tensor.cols);
    copy(tensor, copied);
    return copied;
  }

  /// The tensor itself if peers can address it, else an uninitialised substitute.
  [[nodiscard]] Tensor for_peers(const ConstTensor& tensor) const {
    if (tensor.data && lane_->offset_of(tensor.data, tensor.bytes()))
      return {const_cast<std::byte*>(tensor.data), tensor.dtype, tensor.rows, tensor.cols, tensor.owner, memory()};
    return allocate(tensor.dtype, tensor.rows, tensor.cols);
  }
  [[nodiscard]] std::uint64_t offset_of(const Tensor& tensor) const {
    return tensor.data ? *lane_->offset_of(tensor.data, tensor.bytes()) : 0;
  }
  /// Where peers write the rows of `out`.
  [[nodiscard]] device::ClusterDispatch::Output delivery(const Tensor& out) const {
    const Tensor received = for_peers(out);
    return {received, received.data == out.data ? Tensor{} : out};
  }

  [[nodiscard]] device::ClusterShuffle::Place place(const Plan& plan, Stream callers) const {
    const Stream stream = before(callers);
    return {lane_, std::static_pointer_cast<const ClusterPlan>(plan.data()),
            stream == lane_->stream() ? lane_->mark() : lane_->mark(stream), nccl_,
            nccl_ ? nccl_->take_turn() : nullptr};
  }

  template <class Op>
  [[nodiscard]] std::shared_ptr<Pending> launch(const Plan& plan, const Announcement& announcement,
                                                typename Op::Inputs inputs) {
    try {
      return issue<Op>(plan, announcement, std::move(inputs));
    } catch (...) {
      lane_->finish_after_error();  // the operation may have launched its preparation
      throw;
    }
  }

  std::shared_ptr<device::Lane> lane_;
  std::shared_ptr<device::NcclNetwork> nccl_;  // destroyed before the lane, which waits for its kernels
};

}  // namespace

std::shared_ptr<Engine::Impl> make_cluster_engine(World& world, const EngineOptions& options,
                                                  std::shared_ptr<DeviceHeap> heap) {
  const device::OnDevice scope(heap->memory.device());  // NCCL's communicators belong to the current device
  // The largest segment: a row of f32, or the weight gradients of one token.
  const auto most_elements = std::max<std::int64_t>(options.hidden, Routing::kMaxTopK);
  const auto least_bytes =
      std::max(options.device->batch_bytes, static_cast<std::size_t>(most_elements) * sizeof(float));
  auto lane = std::make_shared<device::Lane>(world.impl()->comm->transport(), *world.impl()->group, std::move(heap),
                                             least_bytes, options.device->num_batches);
  std::shared_ptr<device::NcclNetwork> nccl;
  if (options.device->network == DeviceNetwork::nccl) nccl = device::NcclNetwork::join(world, *lane);
  return std::make_shared<ClusterEngine>(world, options, std::move(lane), std::move(nccl));
}

PlanArrays ClusterPlan::device_arrays() const {
  const auto at = [&](const auto& list) {
    return std::span(list.at(block.get()), static_cast<std::size_t>(list.size));
  };
  return {at(lists.expert_offsets),       at(lists.expert_counts),         at(lists.row_count),
          at(lists.unique_of_expert_row), at(lists.expert_rows_of_unique), at(lists.unique_experts),
          at(lists.unique_weights)};
}

}  // namespace shunt
