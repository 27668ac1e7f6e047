// The engine on host memory.
#include "engine/host_engine.hpp"

#include <cstring>

#include "engine/combine.hpp"
#include "engine/combine_backward.hpp"
#include "engine/dispatch.hpp"
#include "engine/host_driven_engine.hpp"
#include "engine/plan_run.hpp"
#include "engine/row_block.hpp"

namespace shunt {
namespace {

class HostEngine final : public HostDrivenEngine {
 public:
  HostEngine(World& engine_world, const EngineOptions& engine_options)
      : HostDrivenEngine(engine_world, engine_options, EngineKind::host) {}

  [[nodiscard]] Tensor allocate(DType dtype, std::int64_t rows, std::int64_t cols) const override {
    Tensor tensor{nullptr, dtype, rows, cols};
    const Block block = world->comm->allocate(tensor.bytes());
    tensor.data = block.data;
    tensor.owner = block.owner;
    return tensor;
  }

  void copy(const ConstTensor& from, const Tensor& to) const override { copy_rows(from, to); }

  [[nodiscard]] Plan plan(const Routing& routing, const ExpertMap& map, const PlanOptions& plan_options) override {
    return Plan(make_plan(routing, map, plan_options));
  }

  [[nodiscard]] Ticket<Plan> start_plan(const Routing& routing, const ExpertMap& map,
                                        const PlanOptions& plan_options) override {
    auto pending = std::make_shared<PendingPlan>(world->comm);
    auto run = new_plan(routing, map, plan_options, true);
    const Plan plan(run->plan());
    pending->start(std::move(run));
    return {std::move(pending), plan};
  }

  [[nodiscard]] Ticket<Rows> dispatch(const Plan& plan, const ConstTensor& x,
                                      const DispatchOptions& dispatch_options) override {
    const PlanData& data = *plan.data();
    const RowFormat format = row_format(data.options.layout);
    const RowBlock shape = Dispatch::block_of(data, format, data.self);
    const auto& [scales, out, out_scales, stream] = dispatch_options;
    const bool only_rows =
        format.scales_per_row == 0 && !format.origins && !format.weights && data.options.layout != Layout::padded;
    const bool in_place =
        only_rows && out.data && out.is_contiguous() && offset_of(out.data, shape.bytes()).has_value();
    const Block block = in_place ? Block{out.data, shape.bytes(), out.owner} : world->comm->allocate(shape.bytes());

    const std::int64_t num_rows = data.num_rows();
    const auto count = static_cast<std::size_t>(num_rows);
    Rows rows;
    rows.plan = plan;
    rows.data = is_given(out) ? out : Tensor{block.data, options.dtype, num_rows, options.hidden, block.owner};
    if (has_scales())
      rows.scales =
          is_given(out_scales) ? out_scales : borrow(shape.scales(block.data, 0), f32, num_rows, checks().num_scales());
    if (format.origins) rows.origins = {shape.origins(block.data), count};
    if (format.weights) rows.weights = {shape.weights(block.data), count};
    if (data.options.layout == Layout::padded)
      rows.source_counts = {shape.source_counts(block.data), count / static_cast<std::size_t>(data.options.max_tokens)};
    if (is_given(out) && !only_rows) {
      // Companions stay in the block even where rows are copied elsewhere.
      using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
      rows.data.owner = std::make_shared<const Owners>(block.owner, out.owner);
    }

    Dispatch::Inputs inputs{x, scales, format, block, in_place ? Tensor() : out, out_scales};
    const Announcement announcement{OpKind::dispatch, data.hash, *offset_of(block.data, 0), shape.bytes(), 0};
    return {issue<Dispatch>(plan, announcement, std::move(inputs)), std::move(rows)};
  }

  [[nodiscard]] std::shared_ptr<Pending> start(const Pull& pull) override {
    const PlanData& plan = *pull.plan.data();
    const Block published = plan.options.packed ? publish_packed(plan, pull.rows) : publish(pull.rows);
    const Announcement announcement{pull.kind, pull.plan.data()->hash, *offset_of(published.data, 0), pull.rows.bytes(),
                                    0};
    Combine::Inputs inputs{published.owner,
                           options.hidden,
                           {*options.expert_dtype, *options.wire_dtype, *options.result_dtype},
                           options.reduction,
                           pull.kind == OpKind::combine,
                           pull.out};
    return issue<Combine>(pull.plan, announcement, std::move(inputs));
  }

  [[nodiscard]] std::shared_ptr<Pending> start(const Backward& backward) override {
    const auto& [rows, weights] = backward.gradients;
    const bool has_weights = backward.plan.layout() != Layout::token_unique;
    if (weights.bytes() > 0) std::memset(weights.data, 0, weights.bytes());
    const Block output{rows.data, rows.bytes(), rows.owner};
    const Block published = has_weights ? publish(backward.expert_out) : output;
    CombineBackward::Inputs inputs{backward.grad_out,     published.owner,
                                   *options.expert_dtype, output,
                                   has_weights,           reinterpret_cast<float*>(weights.data)};
    const Announcement announcement{OpKind::combine_backward, backward.plan.data()->hash, *offset_of(output.data, 0),
                                    output.bytes, *offset_of(published.data, 0)};
    return issue<CombineBackward>(backward.plan, announcement, std::move(inputs));
  }

 private:
  [[nodiscard]] RowFormat row_format(Layout layout) const {
    const auto hidden = static_cast<std::size_t>(options.hidden);
    return {hidden * size_of(options.dtype), has_scales() ? scales_per_row(hidden) : 0, options.companions.ids,
            options.companions.weights && layout != Layout::token_unique};
  }

  [[nodiscard]] std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const {
    return world->comm->transport().offset_of(data, bytes);
  }

  /// The tensor itself if peers can read it, else a copy.
  [[nodiscard]] Block publish(const ConstTensor& tensor) const {
    if (tensor.data && tensor.is_contiguous() && offset_of(tensor.data, tensor.bytes()))
      return {const_cast<std::byte*>(tensor.data), tensor.bytes(), tensor.owner};  // peers only read it
    const Tensor copy = allocate(tensor.dtype, tensor.rows, tensor.cols);
    copy_rows(tensor, copy);
    return {copy.data, copy.bytes(), copy.owner};
  }

  /// A copy with packed rows moved back to their padded slots.
  [[nodiscard]] Block publish_packed(const PlanData& plan, const ConstTensor& tensor) const {
    const std::span counts = plan.arrived_counts->get();
    call("combine").demand(!counts.empty() || plan.num_rows() == 0,
                           "packed rows need a dispatch with the plan to be complete before");
    const Tensor padded = allocate(tensor.dtype, tensor.rows, tensor.cols);
    unpack(packed_runs(counts, num_ranks(), plan.options.max_tokens), tensor, padded);
    return {padded.data, padded.bytes(), padded.owner};
  }
};

}  // namespace

std::shared_ptr<Engine::Impl> make_host_engine(World& world, const EngineOptions& options) {
  return std::make_shared<HostEngine>(world, options);
}

}  // namespace shunt
