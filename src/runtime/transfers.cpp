#include "runtime/transfers.hpp"

#include <algorithm>
#include <cstring>

#include "core/fail.hpp"

namespace shunt::runtime {
namespace {

using graph::DimId;
using graph::DimRole;
using graph::Op;
using graph::OpKind;
using graph::ValueId;

/// Waits for a ticket, then passes its result to `deliver`.
template <class Result, class Deliver>
class TicketTransfer final : public Transfer {
 public:
  TicketTransfer(Ticket<Result> ticket, Deliver deliver) : ticket_(std::move(ticket)), deliver_(std::move(deliver)) {}
  [[nodiscard]] bool done() const override { return ticket_.done(); }
  void finish() override { deliver_(ticket_.wait()); }

 private:
  Ticket<Result> ticket_;
  Deliver deliver_;
};

template <class Result, class Deliver>
std::unique_ptr<Transfer> transfer(Ticket<Result> ticket, Deliver deliver) {
  return std::make_unique<TicketTransfer<Result, Deliver>>(std::move(ticket), std::move(deliver));
}

constexpr auto kNothing = [](const auto&) {};

}  // namespace

Transfers::Transfers(World& world, const graph::Graph& graph, StepMemory& memory, const TransferOptions& options)
    : world_(world), graph_(graph), memory_(memory) {
  for (const Op& op : graph.ops()) {
    if (op.kind == OpKind::plan) add_layer(op, options);
    if (graph::is_all_to_all(op)) check(op);
  }
}

void Transfers::add_layer(const Op& op, const TransferOptions& options) {
  const std::int32_t number = op.origin.layer;
  const DimId experts = op.attributes.dims("expert")[0], rows = op.attributes.dims("rows")[0];
  const auto num_experts = static_cast<std::int32_t>(graph_.dims[experts].size);
  auto found = layers_.find(number);
  if (found == layers_.end()) {
    const auto given = options.maps.find(number);
    ExpertMap map = given == options.maps.end() ? ExpertMap::contiguous(num_experts, world_.size()) : given->second;
    const std::int64_t here = graph_.dims[graph_.dims[rows].groups].size;
    if (map.num_local(world_.rank()) != here || map.num_experts() != num_experts)
      fail(ErrorCode::invalid_argument,
           "the map of layer {} gives rank {} {} of {} experts, but the graph has {} of {} on each rank", number,
           world_.rank(), map.num_local(world_.rank()), map.num_experts(), here, num_experts);
    const std::int64_t width = width_of_rows(op.results[0]);
    found = layers_
                .emplace(number, Layer{std::move(map), Engine(world_, {.hidden = std::max<std::int64_t>(width, 1),
                                                                       .dtype = f32,
                                                                       .name = fmt::format("layer {}", number)})})
                .first;
  }
  plans_[op.results[0]] = {&found->second, op.operands.size() == 2 ? op.operands[1] : ValueId(), rows, {}};
}

/// Elements of a row that is sent with the plan; 0 if none is.
std::int64_t Transfers::width_of_rows(ValueId plan) const {
  for (const Op& op : graph_.ops())
    if (graph::is_all_to_all(op) && op.operands[1] == plan) return width_of(op);
  return 0;
}

std::int64_t Transfers::width_of(const Op& op) const {
  const auto& plan = graph_.type(op.operands[1]);
  return graph_.dims.count(graph::without(graph_.type(op.operands[0]).dims, plan.dims));
}

void Transfers::check(const Op& op) const {
  const Planned& planned = plans_.at(op.operands[1]);
  if (width_of(op) != planned.layer->engine.options().hidden)
    fail(ErrorCode::unsupported, "%{}: all rows of a layer have the same width", graph_.value(op.results[0]).name);
  if (op.operands.size() >= 3 && op.operands[2] != planned.weights)
    fail(ErrorCode::unsupported, "%{} has other weights than its plan", graph_.value(op.results[0]).name);
}

std::unique_ptr<Transfer> Transfers::start(const Op& op) {
  switch (op.kind) {
    case OpKind::plan: return plan(op);
    case OpKind::dispatch: return dispatch(op);
    case OpKind::combine: return combine(op);
    case OpKind::combine_dx: return combine_dx(op);
    case OpKind::all_reduce: return all_reduce(op);
    default: fail(ErrorCode::unsupported, "{} is no op of the comm lane", graph::info(op.kind).name);
  }
}

std::unique_ptr<Transfer> Transfers::plan(const Op& op) {
  Planned& planned = plans_.at(op.results[0]);
  const auto& type = graph_.type(op.operands[0]);
  const auto choices = std::ranges::find(type.dims, DimRole::choice, [&](DimId dim) { return graph_.dims[dim].role; });
  const std::int64_t topk = graph_.dims[*choices].size;
  const Tensor experts = memory_.matrix(op.operands[0], topk);
  Routing routing{.experts = std::span(reinterpret_cast<const std::int32_t*>(experts.data),
                                       static_cast<std::size_t>(experts.rows * topk)),
                  .topk = static_cast<std::int32_t>(topk)};
  if (planned.weights.valid()) routing.weights = memory_.matrix(planned.weights, topk).as<float>();
  return transfer(planned.layer->engine.start_plan(routing, planned.layer->map), [this, &planned](Plan plan) {
    planned.plan = std::move(plan);
    memory_.set_rows(planned.rows, planned.plan);
  });
}

std::unique_ptr<Transfer> Transfers::dispatch(const Op& op) {
  Planned& planned = plan_of(op);
  const std::int64_t width = width_of(op);
  return transfer(planned.layer->engine.dispatch(planned.plan, memory_.matrix(op.operands[0], width),
                                                 {.out = memory_.matrix(op.results[0], width)}),
                  kNothing);
}

std::unique_ptr<Transfer> Transfers::combine(const Op& op) {
  Planned& planned = plan_of(op);
  const std::int64_t width = width_of(op);
  const Tensor rows = memory_.matrix(op.operands[0], width);
  const CombineOptions options{.out = memory_.matrix(op.results[0], width)};
  Engine& engine = planned.layer->engine;
  return transfer(op.operands.size() == 3 ? engine.combine(planned.plan, rows, options)
                                          : engine.dispatch_backward(planned.plan, rows, options),
                  kNothing);
}

std::unique_ptr<Transfer> Transfers::combine_dx(const Op& op) {
  Planned& planned = plan_of(op);
  const std::int64_t width = width_of(op);
  return transfer(planned.layer->engine.combine_backward(planned.plan, memory_.matrix(op.operands[0], width),
                                                         memory_.matrix(op.operands[3], width)),
                  [this, &op, topk = planned.plan.topk()](const Gradients& gradients) {
                    memory_.adopt(op.results[0], gradients.rows);
                    const Tensor weights = memory_.matrix(op.results[1], topk);
                    std::memcpy(weights.data, gradients.weights.data, weights.bytes());
                  });
}

std::unique_ptr<Transfer> Transfers::all_reduce(const Op& op) {
  const View view = memory_.view(op.operands[0]);
  return transfer(world_.all_reduce(memory_.matrix(op.operands[0], view.count())), kNothing);
}

std::span<const std::int32_t> Transfers::expert_offsets(const Op& op) const {
  for (const ValueId operand : op.operands)
    if (const auto found = plans_.find(operand); found != plans_.end()) return found->second.plan.expert_offsets();
  return {};
}

}  // namespace shunt::runtime
